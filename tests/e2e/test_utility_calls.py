"""What a front end does to a core process that runs a model: sleep, profiles, KV events."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.wire.messages import FinishReason
from tests.core.builders import tokens_of
from tests.core.front_end import CoreProcess, FrontEnd
from tests.core.kv_subscriber import KVSubscriber
from tests.core.model.tiny_model import TINY, TinyModel


@pytest.fixture
def front_end(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path) as made:
        yield made


@pytest.fixture
def core(front_end: FrontEnd, tmp_path: Path) -> Iterator[CoreProcess]:
    """Ready, with a small model, a folder for profiles, and KV events of blocks of two tokens."""
    (tmp_path / "model").mkdir()
    TinyModel(TINY).write_safetensors(tmp_path / "model")
    options = ["--profile-dir", f"{tmp_path}/profiles", "--kv-cache-memory=1MiB", "--block-size=2"]
    events = [
        "--kv-events-endpoint",
        f"ipc://{tmp_path}/events",
        "--kv-events-replay-endpoint",
        f"ipc://{tmp_path}/replay",
    ]
    with CoreProcess(front_end.address, f"{tmp_path}/model", *options, *events, module="core") as made:
        front_end.accept()
        yield made


def greedy(front_end: FrontEnd, request_id: str) -> list[int]:
    front_end.add(request_id, temperature=0.0, max_tokens=6)
    return tokens_of(front_end.receive_until_finished(request_id)[request_id])


def memory(front_end: FrontEnd, call_id: int) -> dict[str, int]:
    front_end.call(call_id, "collective_rpc", "get_memory_usage", None, [], {})
    answer = front_end.receive_answer(call_id)
    assert answer.failure_message is None
    assert answer.result is not None
    [usage] = answer.result[1]
    return dict(usage)


def test_sleep_and_wake_up(front_end: FrontEnd, core: CoreProcess) -> None:
    """The memory goes and comes back, a request that came meanwhile is served, greedy tokens are the same as before.

    Who waits for a wake-up when the core is told to end gets a final output.
    """
    before = greedy(front_end, "before")
    awake = memory(front_end, 1)
    assert min(awake.values()) > 100_000
    front_end.call(2, "sleep", 1, "wait")
    assert front_end.receive_answer(2).failure_message is None
    assert memory(front_end, 3) == {"weights": 0, "kv_cache": 0}
    front_end.add("meanwhile", temperature=0.0, max_tokens=6)
    front_end.call(4, "wake_up", None)
    assert front_end.receive_answer(4).failure_message is None
    assert tokens_of(front_end.receive_until_finished("meanwhile")["meanwhile"]) == before
    assert greedy(front_end, "after") == before
    assert memory(front_end, 5) == awake
    front_end.call(6, "sleep", 2, "abort")
    front_end.receive_answer(6)
    front_end.add("waits")
    front_end.call(7, "is_sleeping")
    front_end.receive_answer(7)
    core.terminate()
    [output] = front_end.receive_until_finished("waits")["waits"]
    assert output.finish_reason is FinishReason.ABORT
    assert core.wait() == 0


def test_profiles_and_events(front_end: FrontEnd, core: CoreProcess, tmp_path: Path) -> None:
    """A trace of the steps in the folder that was named; a subscriber hears of the blocks they filled."""
    front_end.call(1, "profile", True, "mine")
    assert front_end.receive_answer(1).failure_message is None
    greedy(front_end, "a")
    front_end.call(2, "profile", False, None)
    assert front_end.receive_answer(2).failure_message is None
    [trace] = (tmp_path / "profiles").iterdir()
    assert trace.name.startswith("mine-")
    with KVSubscriber(f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay") as subscriber:
        subscriber.catch_up(len(subscriber.ask_replay(b"\0" * 8)))
        assert [1, 2] in subscriber.known.blocks.values()
    core.terminate()
    assert core.wait() == 0
