"""One run of a workload: prompts, warm-up, passes."""

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.load import MultiplexedSender, RequestRecord, Send, Sender, closed_loop, open_loop
from bench.process_cpu import ProcessCpu
from bench.prompts import make_prompts
from bench.statistics import Distribution, Summary, lateness_s, summarize
from bench.workload import Workload
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.sampling_params_pb2 import SamplingParams
from sluicegate_client import AsyncClient
from sluicegate_client.access import Access
from sluicegate_client.channel import balancing_options, key_metadata, open_async_channel


@dataclass(frozen=True, slots=True)
class Target:
    """The server under load."""

    address: str
    timeout_s: float
    """Of each request."""
    gateway_pid: int | None = None
    """Its gateway process on this machine, whose CPU time is to be taken."""
    pace: float | None = None
    """Tokens/s of each stream, where a null core keeps to it."""
    access: Access = field(default_factory=Access)
    """What it lets in."""
    multiplexed: bool = False
    """All requests share one stream."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """What one pass measured. ``gateway_cpu_s`` and ``lateness_ms`` are None where they were not asked for."""

    name: str
    records: Sequence[RequestRecord]
    summary: Summary
    gateway_cpu_s: float | None
    lateness_ms: Distribution | None


class Benchmark:
    """Runs ``workload``; ``on_finished`` hears of every measured request that has ended."""

    def __init__(self, workload: Workload, target: Target, on_finished: Callable[[], None]) -> None:
        self._workload = workload
        self._target = target
        self._on_finished = on_finished
        # Apart from every other run's, so that only what this run has sent can be cached.
        self._cache_salt = uuid.uuid4().hex

    async def run(self) -> list[PassResult]:
        """Raises SluicegateError when the server cannot be reached or does not take the prompts."""
        workload, address, access = self._workload, self._target.address, self._target.access
        async with (
            AsyncClient(address, **vars(access)) as client,
            open_async_channel(address, access.credentials, balancing_options(address)) as channel,
        ):
            await client.wait_until_ready(timeout=10)
            passes = {name: await make_prompts(client, workload, name) for name in workload.passes}
            sender = MultiplexedSender if self._target.multiplexed else Sender
            async with sender(channel, self._target.timeout_s, key_metadata(access.api_key)) as send:
                await self._warm_up(send, await make_prompts(client, workload, "warm-up"))
                return [await self._measure(name, send, prompts) for name, prompts in passes.items()]

    async def _warm_up(self, send: Send, prompts: Sequence[Sequence[int]]) -> None:
        """Two short requests: connections, first-use costs of the model's operators."""
        salt = f"{self._cache_salt} warm-up"
        await closed_loop(send, [_request(prompt, 4, salt) for prompt in prompts[:2]], 1)

    async def _measure(self, name: str, send: Send, prompts: Sequence[Sequence[int]]) -> PassResult:
        requests = [_request(prompt, self._workload.output_tokens, self._cache_salt) for prompt in prompts]
        cpu = ProcessCpu(self._target.gateway_pid) if self._target.gateway_pid else None
        records = await self._send_all(send, requests)
        return PassResult(
            name=name,
            records=records,
            summary=summarize(records),
            gateway_cpu_s=cpu.used_s() if cpu else None,
            lateness_ms=_lateness_ms(records, self._target.pace) if self._target.pace else None,
        )

    async def _send_all(self, send: Send, requests: Sequence[pb.GenerateRequest]) -> list[RequestRecord]:
        async def send_and_tell(request: pb.GenerateRequest) -> RequestRecord:
            record = await send(request)
            self._on_finished()
            return record

        if self._workload.rate is None:
            return await closed_loop(send_and_tell, requests, self._workload.concurrency)
        rng = random.Random(f"{self._workload.seed} arrivals")
        return await open_loop(send_and_tell, requests, self._workload.rate, rng)


def _request(prompt: Sequence[int], output_tokens: int, cache_salt: str) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=prompt),
        sampling_params=SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True),
        output_options=pb.OutputOptions(token_ids=True),
        cache_salt=cache_salt,
    )


def _lateness_ms(records: Sequence[RequestRecord], pace: float) -> Distribution:
    return Distribution.of(late_s * 1e3 for record in records for late_s in lateness_s(record, pace))
