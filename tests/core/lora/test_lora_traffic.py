"""Adapters come and go under traffic: every request gets the tokens of the load it began with, and nothing leaks."""

import random
from collections.abc import Sequence

import pytest

from core.config import LoraConfig
from core.engine import EngineCore
from core.executor.fake import FAKE_MODEL, FakeExecutor
from core.executor.fake_request import hash_prefix
from core.request_limits import RequestError
from core.utility_table import UtilityError
from core.wire.messages import LoRARequest
from core.wire.sampling_params import SamplingParams
from tests.core.builders import make_engine, make_message, step

MAX_TOKENS = 8


def tokens_with(key: int, prompt: Sequence[int]) -> list[int]:
    """What FakeExecutor gives with the adapter that was loaded under ``key``; 0: with none."""
    token_ids = list(prompt)
    for _ in range(MAX_TOKENS):
        token_ids.append((hash_prefix(token_ids, key)[-1] >> 24) % FAKE_MODEL.vocab_size)
    return token_ids[len(prompt) :]


class Traffic:
    """Five adapters of which two may run at once and three fit; loads end whenever they like, some never well."""

    def __init__(self, async_scheduling: bool, seed: int) -> None:
        self._draw = random.Random(seed)
        self.executor = FakeExecutor(runs_late=async_scheduling)
        self.executor.loras.is_slow = True
        self.executor.loras.broken_paths.add("/5/0")
        self.engine: EngineCore = make_engine(
            num_blocks=30,
            max_num_seqs=6,
            max_num_batched_tokens=16,
            async_scheduling=async_scheduling,
            executor=self.executor,
            lora=LoraConfig(max_loras=2, max_cpu_loras=3),
        )
        self._version = dict.fromkeys(range(1, 6), 0)
        self.received: dict[str, list[int]] = {}
        self.expected: dict[str, list[int]] = {}
        self.cut_short: set[str] = set()
        self.most_active = 0

    def add(self) -> None:
        lora = self._lora(self._draw.randint(0, 5))
        prompt = [self._draw.randint(1, 2) for _ in range(self._draw.randint(1, 20))]
        message = make_message(f"r{len(self.received)}", prompt, SamplingParams(max_tokens=MAX_TOKENS))
        message.lora_request = lora
        request = self.engine.preprocess_add_request(message)
        try:
            self.engine.add_request(request)
        except RequestError:  # its id is of another path, which is on its way out
            return
        self.received[request.request_id] = []
        self.expected[request.request_id] = tokens_with(request.adapter.key if request.adapter else 0, prompt)

    def disturb(self) -> None:
        """Maybe: end loads, unload, load anew in place of the old, pin nothing, abort."""
        if self._draw.random() < 0.5:
            self.executor.loras.finish_loads()
        lora_id = self._draw.randint(1, 5)
        match self._draw.randint(0, 9):
            case 0:
                self.engine.call_utility("remove_lora", [lora_id])
                self._version[lora_id] += 1
            case 1:
                self._version[lora_id] += 1
                lora = self._lora(lora_id)
                assert lora is not None
                lora.load_inplace = True
                self._call_add(lora)
            case 2:
                lora = self._lora(lora_id)
                assert lora is not None
                self._call_add(lora)
            case 3 if self.engine.scheduler.requests:
                request_id = self._draw.choice(sorted(self.engine.scheduler.requests))
                self.cut_short.add(request_id)
                self.engine.abort_requests([request_id])

    def step(self) -> None:
        for request_id, output in step(self.engine).items():
            self.received[request_id] += output.new_token_ids
            if isinstance(output.stop_reason, str):
                assert output.stop_reason == "refused: lora_request /5/0/adapter_config.json: r is missing"
                self.cut_short.add(request_id)
        active = {request.adapter for request in self.engine.scheduler.running if request.adapter is not None}
        self.most_active = max(self.most_active, len(active))

    def _lora(self, lora_id: int) -> LoRARequest | None:
        return LoRARequest(str(lora_id), lora_id, f"/{lora_id}/{self._version[lora_id]}") if lora_id else None

    def _call_add(self, lora: LoRARequest) -> None:
        try:
            self.engine.call_utility("add_lora", [lora])
        except UtilityError as error:
            assert "in use or pinned" in str(error) or "by id" in str(error)  # noqa: PT017 - either may happen


@pytest.mark.parametrize("async_scheduling", [False, True], ids=["sync", "late"])
def test_every_request_gets_its_own_tokens(async_scheduling: bool) -> None:
    """Some 300 requests. FakeExecutor notices blocks of another load, and adapters that are not there."""
    traffic = Traffic(async_scheduling, seed=11)
    while len(traffic.received) < 300 or traffic.engine.has_requests():
        if len(traffic.received) < 300:
            traffic.add()
            traffic.disturb()
        else:
            traffic.executor.loras.finish_loads()
        traffic.step()
    for request_id, tokens in traffic.received.items():
        expected = traffic.expected[request_id]
        assert tokens == (expected[: len(tokens)] if request_id in traffic.cut_short else expected)
    assert traffic.most_active == 2
    assert len(traffic.executor.loras.paths) <= 3
    traffic.engine.reset()
    assert not traffic.executor.loras.paths
    assert repr(traffic.engine.scheduler.loras) == "Loras([], 0 in memory)"
