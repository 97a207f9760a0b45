"""Adapters in an engine: loaded beside the steps, held back by the limit, gone when nobody uses them any more."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from core.config import LoraConfig
from core.engine import EngineCore
from core.executor.fake import FakeExecutor
from core.request_limits import RequestError
from core.structured_output.compiler import Compilation
from core.structured_output.constraint import Constraint
from core.structured_output.masks import MaskThreads
from core.utility_table import UtilityError
from core.wire.messages import FinishReason, LoRARequest
from core.wire.sampling_params import SamplingParams
from tests.core.builders import expected_tokens, make_engine, make_message, run_to_end, step, tokens_of

A, B, C = (LoRARequest(name, lora_id, f"/{name}") for lora_id, name in enumerate("abc", 1))
PROMPT = (1, 2, 3)


def engine_of(executor: FakeExecutor | None = None, **lora: Any) -> EngineCore:
    return make_engine(executor=executor, lora=LoraConfig(**lora))


def add(engine: EngineCore, request_id: str, lora: LoRARequest | None = None, **fields: Any) -> None:
    params = SamplingParams(max_tokens=fields.pop("max_tokens", 3), temperature=0.0)
    message = make_message(request_id, fields.pop("prompt", PROMPT), params, lora_request=lora, **fields)
    engine.add_request(engine.preprocess_add_request(message))


def call(engine: EngineCore, method: str, *args: Any) -> Any:
    """Its result, once it is there."""
    answer = engine.call_utility(method, list(args))
    while isinstance(answer, Future):
        if answer.done():
            return answer.result()
        engine.step()
    return answer


def running(engine: EngineCore) -> set[str]:
    return {request.request_id for request in engine.scheduler.running}


def test_requests_with_other_adapters_get_other_tokens() -> None:
    """All in the same steps; those without one get what they always do."""
    engine = engine_of()
    for request_id, lora in (("none", None), ("a", A), ("b", B), ("also a", A)):
        add(engine, request_id, lora)
    tokens = {request_id: tokens_of(outputs) for request_id, outputs in run_to_end(engine).items()}
    assert tokens["none"] == expected_tokens(PROMPT, 3)
    assert tokens["a"] == tokens["also a"] != tokens["b"] != tokens["none"]
    assert engine.call_utility("list_loras", []) == [A.lora_int_id, B.lora_int_id]


def test_adapters_come_and_go_by_call() -> None:
    """As vLLM's calls answer."""
    executor = FakeExecutor()
    engine = engine_of(executor)
    assert call(engine, "add_lora", A) is True
    assert call(engine, "add_lora", A) is True
    assert list(executor.loras.paths.values()) == ["/a"]
    assert engine.call_utility("list_loras", []) == [1]
    assert engine.call_utility("pin_lora", [1]) is True
    assert call(engine, "remove_lora", 1) is True
    assert call(engine, "remove_lora", 1) is False
    assert engine.call_utility("list_loras", []) == []
    assert not executor.loras.paths
    with pytest.raises(UtilityError, match="adapter 1 is not loaded"):
        engine.call_utility("pin_lora", [1])


def test_only_requests_that_need_it_wait_for_a_load() -> None:
    """Others are computed meanwhile; a load may end with nobody left who wants it."""
    executor = FakeExecutor()
    executor.loras.is_slow = True
    engine = engine_of(executor)
    add(engine, "slow", A)
    add(engine, "dropped", A)
    add(engine, "quick")
    step(engine)
    engine.abort_requests(["dropped"])
    for _ in range(5):
        step(engine)
    assert not running(engine)
    assert engine.has_requests()
    executor.loras.finish_loads()
    outputs = run_to_end(engine)
    assert len(tokens_of(outputs["slow"])) == 3


def test_a_broken_adapter_ends_the_requests_that_name_it_and_no_others() -> None:
    """With the sentence that names file and field. No rank keeps a part of it; it may be loaded when it is whole."""
    executor = FakeExecutor()
    executor.loras.broken_paths.add("/a")
    engine = engine_of(executor)
    add(engine, "good")
    add(engine, "bad", A)
    outputs = run_to_end(engine)
    (end,) = outputs["bad"]
    assert (end.finish_reason, end.new_token_ids) == (FinishReason.ERROR, [])
    assert end.stop_reason == "refused: lora_request /a/adapter_config.json: r is missing"
    assert tokens_of(outputs["good"]) == expected_tokens(PROMPT, 3)
    with pytest.raises(UtilityError, match=r"Call to add_lora method failed: /a/adapter_config\.json: r is missing"):
        call(engine, "add_lora", A)
    assert not executor.loras.failed_keys
    executor.loras.broken_paths.clear()
    assert call(engine, "add_lora", A) is True


def test_one_that_waits_for_its_grammar_is_told_too() -> None:
    """It would be told by nobody later."""
    executor = FakeExecutor()
    executor.loras.broken_paths.add("/a")
    engine = engine_of(executor)
    for request_id in ("first", "held"):
        add(engine, request_id, A)
    waits = Constraint("structured_outputs.regex", Compilation(Future()), (), MaskThreads(), 32)
    engine.scheduler.hold(engine.scheduler.requests["held"], waits)
    outputs = run_to_end(engine)
    assert {request_id: len(ends) for request_id, ends in outputs.items()} == {"first": 1, "held": 1}


def test_at_most_max_loras_run_at_once_and_nobody_waits_for_ever() -> None:
    """Those behind with adapters wait too, those without pass."""
    engine = engine_of(max_loras=1)
    call(engine, "add_lora", B)
    add(engine, "a1", A, max_tokens=4)
    step(engine)
    step(engine)
    for request_id, lora in (("b", B), ("a2", A), ("none", None)):
        add(engine, request_id, lora, max_tokens=4)
    step(engine)
    assert running(engine) == {"a1", "none"}
    seen = []
    while engine.has_requests():
        step(engine)
        used = {request.adapter for request in engine.scheduler.running if request.adapter}
        assert len(used) <= 1
        seen += [name for name in ("b", "a2") if name in running(engine) and name not in seen]
    assert seen == ["b", "a2"]


def test_one_in_use_is_unloaded_when_its_last_request_has_ended() -> None:
    """Nobody new may use it; its name and its id are free at once."""
    executor = FakeExecutor()
    engine = engine_of(executor)
    add(engine, "old", A, max_tokens=6)
    step(engine)
    removal = engine.call_utility("remove_lora", [1])
    with pytest.raises(RequestError, match="lora_request names adapter 1, which is not loaded"):
        add(engine, "late", LoRARequest("a", 1))
    add(engine, "new", A, max_tokens=6)
    step(engine)
    assert not removal.done()
    assert len(executor.loras.paths) == 2
    outputs = run_to_end(engine)
    assert removal.result() is True
    assert list(executor.loras.paths) == [2]
    assert len(tokens_of(outputs["old"])) < len(tokens_of(outputs["new"])) == 6


def test_nothing_is_found_that_another_adapter_of_that_name_has_computed() -> None:
    """Nor what was computed without one: FakeExecutor notices blocks that hold something else."""
    prompt = tuple(range(20))
    engine = engine_of()

    def num_cached(request_id: str, lora: LoRARequest | None) -> int:
        add(engine, request_id, lora, prompt=prompt)
        stats = run_to_end(engine)[request_id][0].prefill_stats
        assert stats is not None
        return stats.num_cached_tokens

    assert [num_cached("1", None), num_cached("2", A), num_cached("3", A), num_cached("4", B)] == [0, 0, 16, 0]
    assert call(engine, "remove_lora", 1) is True
    assert num_cached("5", A) == 0
    assert call(engine, "add_lora", LoRARequest("a", 1, "/other", load_inplace=True)) is True
    assert num_cached("6", LoRARequest("a", 1, "/other")) == 0
    assert num_cached("7", None) == 16


def test_the_one_used_longest_ago_makes_room() -> None:
    """Neither a pinned one, nor one that is in use."""
    executor = FakeExecutor()
    engine = engine_of(executor, max_loras=1, max_cpu_loras=2)
    for lora in (A, B):
        call(engine, "add_lora", lora)
    add(engine, "a", A)
    run_to_end(engine)
    call(engine, "add_lora", C)
    assert engine.call_utility("list_loras", []) == [1, 3]
    engine.call_utility("pin_lora", [1])
    call(engine, "add_lora", B)
    assert engine.call_utility("list_loras", []) == [1, 2]
    with pytest.raises(UtilityError, match="at most 1 adapters may be pinned: --max-cpu-loras less one"):
        engine.call_utility("pin_lora", [2])
    add(engine, "b", B)
    step(engine)
    with pytest.raises(UtilityError, match=r"2 \(--max-cpu-loras\) adapters are in memory, and each of them is in use"):
        engine.call_utility("add_lora", [C])
    add(engine, "c", C)
    assert len(tokens_of(run_to_end(engine)["c"])) == 3


def test_an_id_means_one_adapter() -> None:
    """Front ends that give the same id to others are told so; a request need not repeat the path."""
    engine = engine_of()
    call(engine, "add_lora", A)
    with pytest.raises(UtilityError, match=r"by id 1, which is 'a' of '/a', got 'b' of '/a'"):
        engine.call_utility("add_lora", [LoRARequest("b", 1, "/a")])
    with pytest.raises(RequestError, match=r"by id 1, which is 'a' of '/a', got 'a' of '/b'"):
        add(engine, "r", LoRARequest("a", 1, "/b"))
    with pytest.raises(RequestError, match="lora_request must have an id of at least 1, got 0"):
        add(engine, "r", LoRARequest("a", 0, "/a"))
    add(engine, "r", LoRARequest("a", 1))
    assert len(tokens_of(run_to_end(engine)["r"])) == 3


def test_one_in_place_of_another_leaves_running_requests_what_they_have() -> None:
    """Those that come after its load run with the new one."""
    executor = FakeExecutor()
    engine = engine_of(executor)
    add(engine, "old", A, max_tokens=6)
    step(engine)
    other = LoRARequest("a", 1, "/other", load_inplace=True)
    call(engine, "add_lora", other)
    assert sorted(executor.loras.paths.values()) == ["/a", "/other"]
    add(engine, "new", other, max_tokens=6)
    run_to_end(engine)
    assert list(executor.loras.paths.values()) == ["/other"]


def test_removed_while_it_is_loading() -> None:
    """It is let go of when it is there."""
    executor = FakeExecutor()
    executor.loras.is_slow = True
    engine = engine_of(executor)
    adding, removing = engine.call_utility("add_lora", [A]), engine.call_utility("remove_lora", [1])
    executor.loras.finish_loads()
    run_to_end(engine)
    assert adding.result() is removing.result() is True
    assert not executor.loras.paths
    assert repr(engine.scheduler.loras) == "Loras([], 0 in memory)"


def test_steps_in_flight_keep_the_adapter_they_need() -> None:
    """It is unloaded behind them."""
    executor = FakeExecutor(runs_late=True)
    engine = make_engine(executor=executor, lora=LoraConfig(), async_scheduling=True)
    add(engine, "r", A, max_tokens=9)
    for _ in range(3):
        engine.step()
    removal = engine.call_utility("remove_lora", [1])
    engine.abort_requests(["r"])
    run_to_end(engine)
    assert removal.result() is True


def test_statistics_count_by_name() -> None:
    """Waiting and running ones."""
    engine = engine_of(max_loras=1)
    call(engine, "add_lora", A)
    for request_id, lora in (("1", A), ("2", A), ("3", B), ("4", None)):
        add(engine, request_id, lora)
    outputs, _ = engine.step()
    stats = outputs[0].scheduler_stats
    assert stats is not None
    assert (stats.running_lora_adapters, stats.waiting_lora_adapters) == ({"a": 2}, {"b": 1})


def test_a_request_that_gives_up_before_its_adapter_was_begun_leaves_nothing() -> None:
    engine = engine_of()
    add(engine, "r", A)
    engine.abort_requests(["r"])
    run_to_end(engine)
    assert repr(engine.scheduler.loras) == "Loras([], 0 in memory)"


def test_asleep_nothing_is_loaded_and_requests_wait() -> None:
    """Until it is awake."""
    engine = engine_of()
    call(engine, "sleep", 1)
    with pytest.raises(UtilityError, match="the engine is asleep"):
        engine.call_utility("add_lora", [A])
    add(engine, "r", A)
    engine.call_utility("wake_up", [None])
    assert len(tokens_of(run_to_end(engine)["r"])) == 3


def test_adapters_are_where_the_operator_wants_them(tmp_path: Path) -> None:
    """Whatever links and dots a path has, and whoever asks."""
    root = tmp_path / "adapters"
    (root / "a").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path)
    (root / "circle").symlink_to("circle")
    executor = FakeExecutor()
    engine = engine_of(executor, root=root)
    for path in ("/etc", str(root / ".." / "x"), str(root / "link" / "x"), "a"):
        with pytest.raises(RequestError, match=r"lora_request must have a path in .*/adapters, which is --lora-root"):
            add(engine, "r", LoRARequest("a", 1, path))
        with pytest.raises(UtilityError, match="must have a path in"):
            engine.call_utility("add_lora", [LoRARequest("a", 1, path)])
    with pytest.raises(RequestError, match="lora_request must have a path that leads somewhere: Symlink loop"):
        add(engine, "r", lora=LoRARequest("x", 1, str(root / "circle")))
    call(engine, "add_lora", LoRARequest("a", 1, f"{root}/b/../a"))
    assert list(executor.loras.paths.values()) == [str((root / "a").resolve())]


def test_without_lora_nothing_of_it_works() -> None:
    """And the refusals say why."""
    engine = make_engine()
    with pytest.raises(RequestError, match=r"lora_request is not supported by this engine: LoRA is not enabled"):
        add(engine, "r", A)
    assert engine.ready_response.supports_lora is False
    assert engine_of(max_loras=3).ready_response.max_loras == 3


def test_an_engine_that_serves_others_now_has_no_adapters() -> None:
    engine = engine_of()
    call(engine, "add_lora", A)
    engine.reset()
    assert engine.call_utility("list_loras", []) == []


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"max_loras": 0}, "max_loras must be at least 1, got 0"),
        ({"max_lora_rank": 0}, "max_lora_rank must be at least 1, got 0"),
        ({"max_loras": 4, "max_cpu_loras": 2}, r"max_cpu_loras must be at least max_loras \(4\), got 2"),
    ],
)
def test_wrong_limits_are_told(config: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LoraConfig(**config)
