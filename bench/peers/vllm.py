"""vLLM on a CPU: its own gRPC server, which takes and gives token ids."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from bench.load import RequestRecord, closed_loop
from bench.peers.environment import PeerEnvironment
from bench.peers.library import converted
from bench.peers.peer import Engine, PeerError, Place, Prompts
from bench.peers.process import ended, free_port, running
from bench.workload import Workload

_START_TIMEOUT_S = 900.0
"""The first start compiles; later ones find what it has compiled."""
_REQUEST_TIMEOUT_S = 900.0
_POLL_S = 0.1
_MAX_MODEL_LEN = 2048
_MAX_NUM_SEQS = 32


@dataclass(frozen=True)
class _Served:
    pid: int
    channel: grpc.aio.Channel

    async def run(self, workload: Workload, prompts: Prompts) -> list[RequestRecord]:
        async def send(prompt: Sequence[int]) -> RequestRecord:
            return await self._send(prompt, workload.output_tokens)

        return await closed_loop(send, prompts, workload.concurrency)

    async def _send(self, prompt: Sequence[int], output_tokens: int) -> RequestRecord:
        request = pb.GenerateRequest(
            request_id=uuid.uuid4().hex,
            tokenized=pb.TokenizedInput(input_ids=prompt),
            sampling_params=pb.SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True),
            stream=True,
        )
        generate = self.channel.unary_stream(
            "/vllm.grpc.engine.VllmEngine/Generate",
            request_serializer=pb.GenerateRequest.SerializeToString,
            response_deserializer=pb.GenerateResponse.FromString,
        )
        record = RequestRecord(time.monotonic())
        try:
            async for response in generate(request, timeout=_REQUEST_TIMEOUT_S):
                _note(record, response)
        except grpc.aio.AioRpcError as error:
            record.error = f"{error.code().name}: {error.details()}"
        record.end = time.monotonic()
        return record


def _note(record: RequestRecord, response: pb.GenerateResponse) -> None:
    if num_new_tokens := len(response.chunk.token_ids):
        record.arrivals.append((time.monotonic(), num_new_tokens))
        record.num_prompt_tokens = response.chunk.prompt_tokens
        record.num_cached_tokens = response.chunk.cached_tokens


@asynccontextmanager
async def start(place: Place, _setup: str, home: PeerEnvironment) -> AsyncIterator[Engine]:
    """On the dequantized weights: it does not read a GGUF."""
    address, log = f"127.0.0.1:{free_port()}", place.folder / "vllm.log"
    async with (
        running(_command(place, address, home), log, _environment(place, home)) as process,
        grpc.aio.insecure_channel(address) as channel,
    ):
        await _wait_until_ready(channel, process, log)
        yield _Served(process.pid, channel)


def _command(place: Place, address: str, home: PeerEnvironment) -> list[str]:
    host, port = address.split(":")
    listening = ["--host", host, "--port", port, "--model", str(converted(place.gguf, "dense", home))]
    engine = ["--dtype", "float32", "--max-model-len", str(_MAX_MODEL_LEN), "--max-num-seqs", str(_MAX_NUM_SEQS)]
    return [str(home.python), "-m", "vllm.entrypoints.grpc_server", *listening, *engine]


def _environment(place: Place, home: PeerEnvironment) -> dict[str, str]:
    """As its manual advises for CPUs, but for binding to cores, of which there is none to spare."""
    return {
        **place.environment,
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "LD_PRELOAD": str(home.folder / "lib/libiomp5.so"),
    }


async def _wait_until_ready(channel: grpc.aio.Channel, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
        if process.returncode is not None:
            raise ended("vLLM", log)
        if time.monotonic() > deadline:
            raise PeerError(f"vLLM was not ready within {_START_TIMEOUT_S:g} s")
        await asyncio.sleep(_POLL_S)
