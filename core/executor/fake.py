"""An executor without a model, as strict about block tables as a real one is sensitive to them.

A slot of its KV cache holds a hash of the whole prefix up to its token, made from the slot before it: like real keys
and values, it depends on everything that came before. The next token is a function of the last slot. A wrong block,
count, prefix or preemption therefore gives a wrong token or, where a slot holds what it should not, FakeExecutorError.
A group of layers that has a window reads the slots in it and no other; what it writes is not what other groups write.
"""

from collections import deque
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.executor.fake_loras import FakeLoras
from core.executor.fake_request import FakeExecutorError, FakeRequest, hash_prefix, make_logprobs
from core.executor.fake_step import FakeStep
from core.executor.interface import MEMORY_PARTS, GrammarBitmask, ModelInfo, ModelRunnerOutput, SchedulerOutput
from core.executor.memory_left import MemoryLeft
from core.executor.worker_calls import call_worker

FAKE_MODEL = ModelInfo(max_model_len=2048, vocab_size=1000, dtype="float32", kv_bytes_per_token=8, hidden_size=4)
_EMPTY = -1


def fake_embed(token_ids: Sequence[int]) -> NDArray[np.float32]:
    """The inputs [tokens, hidden_size] that FakeExecutor takes for ``token_ids``: the first element is the token."""
    rows = np.zeros((len(token_ids), FAKE_MODEL.hidden_size), np.float32)
    rows[:, 0] = token_ids
    return rows


def fake_next_token(token_ids: Sequence[int], vocab_size: int) -> int:
    """The token that FakeExecutor gives after ``token_ids``."""
    return _to_token(hash_prefix(token_ids, 0)[-1], vocab_size)


class FakeExecutor:
    """Deterministic, single-threaded. A step runs when it is started or, with ``runs_late``, when it is waited for.

    ``scripted_tokens``: the output tokens of a request id, in place of the computed ones as far as they go.
    ``nan_request_ids``: requests whose logits hold NaN. ``masked_request_ids``: those whose parameters rule out every
    token beyond their script. So does a grammar's mask: of the tokens that it leaves, the computed one chooses.
    ``on_step``: called with the number of each step, from 1, before it runs; what it raises, the step raises.
    """

    max_concurrent_batches = 2

    def __init__(
        self,
        model_info: ModelInfo = FAKE_MODEL,
        kv_cache_bytes: int = 1 << 20,
        scripted_tokens: Mapping[str, Sequence[int]] | None = None,
        nan_request_ids: Container[str] = (),
        masked_request_ids: Container[str] = (),
        on_step: Callable[[int], None] | None = None,
        runs_late: bool = False,
    ) -> None:
        self._model_info = model_info
        self._kv_cache_bytes = kv_cache_bytes
        self._scripted_tokens = scripted_tokens or {}
        self._nan_request_ids = nan_request_ids
        self._masked_request_ids = masked_request_ids
        self._on_step = on_step
        self._runs_late = runs_late
        self._num_steps = 0
        self._queued: deque[tuple[FakeStep, SchedulerOutput]] = deque()
        self._has_failed = False
        self._block_size = 0
        self._slots = np.zeros(0, dtype=np.int64)
        self._num_slots = 0
        self._requests: dict[str, FakeRequest] = {}
        self._failure_callbacks: list[Callable[[], None]] = []
        self.asleep_parts: frozenset[str] = frozenset()
        self.profiles: list[tuple[str | None, int, int | None]] = []
        """Those started, by prefix, steps skipped and longest length."""
        self.is_profiling = False
        self.loras = FakeLoras()

    @property
    def model_info(self) -> ModelInfo:
        return self._model_info

    @property
    def request_ids(self) -> set[str]:
        """The requests it has not been told to forget."""
        return set(self._requests)

    @property
    def num_queued_steps(self) -> int:
        """Steps that were started and have not run yet."""
        return len(self._queued)

    def memory_left(self, num_tokens: int, num_logits: int) -> MemoryLeft:  # noqa: ARG002
        """Twice what the KV cache gets if nobody says its size; steps take nothing."""
        return MemoryLeft(2 * self._kv_cache_bytes, 1, weight_bytes=0, step_bytes=0, num_layers=2)

    def initialize_kv_cache(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._slots = np.full(num_blocks * block_size, _EMPTY, dtype=np.int64)

    def execute_model(self, scheduler_output: SchedulerOutput) -> "Future[ModelRunnerOutput]":
        step = FakeStep(self._run_until)
        self._queued.append((step, scheduler_output))
        if not self._runs_late:
            self._run_until(step)
        return step

    @property
    def memory_bytes(self) -> dict[str, int]:
        """What it holds, slots and a few weights."""
        return {"weights": 0 if "weights" in self.asleep_parts else 1000, "kv_cache": self._slots.nbytes}

    def sleep(self) -> None:
        self.asleep_parts = frozenset(MEMORY_PARTS)
        self._num_slots, self._slots = len(self._slots) or self._num_slots, np.zeros(0, dtype=np.int64)

    def wake_up(self, parts: Collection[str]) -> None:
        if "kv_cache" in self.asleep_parts.intersection(parts):
            self._slots = np.full(self._num_slots, _EMPTY, dtype=np.int64)
        self.asleep_parts -= frozenset(parts)

    def load_lora(self, key: int, path: str) -> "Future[None]":
        return self.loras.load(key, path)

    def unload_lora(self, key: int) -> None:
        if self._queued:
            self._run_until(self._queued[-1][0])
        self.loras.unload(key)

    def start_profile(self, prefix: str | None, num_skipped: int, max_steps: int | None) -> None:
        self.profiles.append((prefix, num_skipped, max_steps))
        self.is_profiling = True

    def stop_profile(self) -> None:
        if not self.is_profiling:
            raise RuntimeError("no profile was started")
        self.is_profiling = False

    def collective_rpc(
        self,
        method: str,
        timeout_s: float | None,  # noqa: ARG002
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> list[Any]:
        return [call_worker(self, method, args, kwargs)]

    def on_failure(self, callback: Callable[[], None]) -> None:
        self._failure_callbacks.append(callback)

    def fail(self) -> None:
        """Run no more steps, not even those in flight, and tell whoever asked. May be called by ``on_step``."""
        self._has_failed = True
        callbacks, self._failure_callbacks = self._failure_callbacks, []
        for callback in callbacks:
            callback()

    def shutdown(self) -> None:
        self._requests.clear()

    def _run_until(self, last: FakeStep) -> None:
        while not last.done():
            step, scheduled = self._queued.popleft()
            try:
                step.set_result(self._run(scheduled))
            except Exception as error:
                step.set_exception(error)

    def _run(self, scheduled: SchedulerOutput) -> ModelRunnerOutput:
        if self.asleep_parts and scheduled.num_scheduled_tokens:
            raise FakeExecutorError(f"tokens to compute, but asleep are {', '.join(sorted(self.asleep_parts))}")
        self._num_steps += 1
        if self._on_step is not None:
            self._on_step(self._num_steps)
        if self._has_failed:
            raise FakeExecutorError(f"step {self._num_steps}: the executor has failed")
        self._update_requests(scheduled)
        self.loras.check(self._requests[request_id].lora for request_id in scheduled.num_scheduled_tokens)
        result = ModelRunnerOutput()
        allowed = _read_bitmask(scheduled.grammar_bitmask, self._model_info.vocab_size)
        for request_id, num_tokens in scheduled.num_scheduled_tokens.items():
            request = self._requests[request_id]
            draft = scheduled.draft_token_ids.get(request_id, [])
            request.token_ids += draft
            self._write_slots(request, num_tokens)
            if request.num_computed_tokens == len(request.token_ids):
                self._sample(request, draft, allowed.get(request_id), result)
            elif draft:
                raise FakeExecutorError(f"{request}: a draft that is not computed")
        return result

    def _update_requests(self, scheduled: SchedulerOutput) -> None:
        for request_id in scheduled.finished_request_ids:
            if self._requests.pop(request_id, None) is None:
                raise FakeExecutorError(f"{request_id} is to be forgotten, but is not known")
        for new in scheduled.new_requests:
            if new.request_id in self._requests:
                raise FakeExecutorError(f"{new.request_id} is new, but is known")
            self._requests[new.request_id] = FakeRequest(new)
        for cached in scheduled.cached_requests:
            self._requests[cached.request_id].update(cached)
        named = [cached.request_id for cached in scheduled.cached_requests]
        named += [new.request_id for new in scheduled.new_requests]
        if named != list(scheduled.num_scheduled_tokens):
            raise FakeExecutorError(f"{named} are named, {list(scheduled.num_scheduled_tokens)} are scheduled")

    def _write_slots(self, request: "FakeRequest", num_tokens: int) -> None:
        start = request.num_computed_tokens
        end = start + num_tokens
        if num_tokens < 1 or end > len(request.token_ids):
            raise FakeExecutorError(f"{request}: asked to compute {num_tokens} tokens")
        for group_idx, window in enumerate(self._model_info.kv_windows):
            seen = 0 if window is None else max(start - window + 1, 0)
            slots = request.find_slots(group_idx, seen, end, self._block_size)
            before = (
                int(self._slots[slots[start - seen - 1]]) ^ group_idx if start > seen else request.hash_before(start)
            )
            written = np.array(hash_prefix(request.inputs(start, end), before))
            self._slots[slots[start - seen :]] = written ^ group_idx
            self._check_slots(request, slots, seen, group_idx)
        request.num_computed_tokens = end

    def _check_slots(self, request: "FakeRequest", slots: NDArray[np.int64], seen: int, group_idx: int) -> None:
        expected = np.array(request.expected_slots(seen + len(slots))[seen:]) ^ group_idx
        wrong = np.flatnonzero(self._slots[slots] != expected)
        if wrong.size:
            position = int(wrong[0])
            state = "was never written" if self._slots[slots[position]] == _EMPTY else "holds another prefix"
            raise FakeExecutorError(f"{request}: slot {slots[position]} at position {seen + position} {state}")

    def _sample(
        self,
        request: "FakeRequest",
        draft: list[int],
        allowed: NDArray[np.int64] | None,
        result: ModelRunnerOutput,
    ) -> None:
        num_known, request_id = len(request.token_ids) - len(draft), request.request_id
        if request.num_prompt_logprobs is not None and num_known == request.num_prompt_tokens:
            result.prompt_logprobs[request_id] = request.score_prompt(request.num_prompt_logprobs)
        if request_id in self._nan_request_ids:
            result.num_nans_in_logits[request_id] = self._model_info.vocab_size
        is_ruled_out = allowed is not None and not len(allowed)
        if is_ruled_out or self._is_masked(request, num_known):
            result.no_possible_token.add(request_id)
        chosen = self._choose(request, num_known, draft)
        if allowed is not None and len(allowed) and not self._is_scripted(request, num_known):
            chosen = [int(allowed[chosen[0] % len(allowed)])]
        request.settle(num_known, chosen)
        result.sampled_token_ids[request_id] = chosen
        if request.num_logprobs is not None:
            result.logprobs[request_id] = make_logprobs(chosen, request.num_logprobs)

    def _choose(self, request: "FakeRequest", num_known: int, draft: list[int]) -> list[int]:
        """What comes after the known tokens, and after each of ``draft`` for as long as it is right."""
        chosen = [self._choose_one(request, num_known)]
        for position, draft_token_id in enumerate(draft, num_known + 1):
            if chosen[-1] != draft_token_id or self._is_masked(request, position):
                break
            chosen.append(self._choose_one(request, position))
        return chosen

    def _choose_one(self, request: "FakeRequest", position: int) -> int:
        num_output_tokens = position - request.num_prompt_tokens
        script = self._scripted_tokens.get(request.request_id, ())
        if num_output_tokens < len(script):
            return script[num_output_tokens]
        [last_slot] = request.find_slots(0, position - 1, position, self._block_size)
        return _to_token(int(self._slots[last_slot]), self._model_info.vocab_size)

    def _is_masked(self, request: "FakeRequest", position: int) -> bool:
        return request.request_id in self._masked_request_ids and not self._is_scripted(request, position)

    def _is_scripted(self, request: "FakeRequest", position: int) -> bool:
        num_scripted = len(self._scripted_tokens.get(request.request_id, ()))
        return position < request.num_prompt_tokens + num_scripted


def _to_token(prefix_hash: int, vocab_size: int) -> int:
    return (prefix_hash >> 24) % vocab_size


def _read_bitmask(mask: GrammarBitmask | None, vocab_size: int) -> dict[str, NDArray[np.int64]]:
    """The tokens that each request with a grammar may have."""
    if mask is None:
        return {}
    rows = np.frombuffer(mask.bits, np.uint8).reshape(len(mask.request_ids), -1)
    bits = np.unpackbits(rows, axis=1, bitorder="little")[:, :vocab_size]
    return {request_id: np.flatnonzero(row) for request_id, row in zip(mask.request_ids, bits, strict=True)}
