"""The null core as a process: its pace, and what it says."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.front_end import CoreProcess, FrontEnd


@pytest.fixture
def front_end(tmp_path: Path) -> Iterator[FrontEnd]:
    with FrontEnd(tmp_path) as found:
        yield found


def test_ready_response(front_end: FrontEnd) -> None:
    """The length given on the command line is what front ends are told."""
    with CoreProcess(front_end.address, "--max-model-len", "321"):
        front_end.receive_hello()
        front_end.send_init()
        assert front_end.receive_ready_response().max_model_len == 321


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        (("--token-ids", "7,8,9"), [9, 7, 8, 9]),
        (("--token-ids", "100-103"), [101, 102, 103, 100]),
        (("--vocab-size", "6"), [5, 0, 1, 2]),
    ],
)
def test_tokens(front_end: FrontEnd, arguments: tuple[str, ...], tokens: list[int]) -> None:
    """The tokens are those asked for, in turn, by position (the prompt has five)."""
    with CoreProcess(front_end.address, *arguments):
        front_end.accept()
        front_end.add("a", max_tokens=4)
        outputs = front_end.receive_until_finished("a")["a"]
        assert [output.new_token_ids[0] for output in outputs] == tokens


def test_rate(front_end: FrontEnd) -> None:
    """No stream is faster than its rate, and all of them share the same steps."""
    rate, num_tokens = 50, 20
    with CoreProcess(front_end.address, "--tokens-per-second", str(rate)):
        front_end.accept()
        for request_id in "abcd":
            front_end.add(request_id, max_tokens=num_tokens)
        timestamps = []
        num_finished = 0
        while num_finished < 4:
            message = front_end.receive()
            timestamps.append(message.timestamp)
            num_finished += sum(output.finished for output in message.outputs)
        assert (timestamps[-1] - timestamps[0]) / (len(timestamps) - 1) > 0.9 / rate
        assert num_tokens <= len(timestamps) < 4 * num_tokens


@pytest.mark.parametrize(
    "arguments", [("--token-ids", "a"), ("--token-ids", "9-1"), ("--max-model-len", "1"), ("--no-such-option",)]
)
def test_bad_arguments(arguments: tuple[str, ...]) -> None:
    """Arguments that make no sense end the command at once, with code 2 and the usage."""
    with CoreProcess("ipc:///nowhere", *arguments) as core:
        assert core.wait() == 2
        assert "Usage: " in core.log
