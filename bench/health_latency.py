"""``python -m bench.health_latency``: how fast a gateway says that it is well while it has other things to do.

this process: Check, every few milliseconds ──▶ gateway ──▶ core without a model
a process of its own: the load              ──▶    │
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import grpc
import numpy as np
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from rich.console import Console
from rich.table import Table

from bench.gateways.api import GENERATE_STREAM
from bench.gateways.contender import ours, running
from bench.gateways.model_option import model_option
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from sluicegate.v1.sampling_params_pb2 import Choice, SamplingParams

_MAX_MESSAGE_BYTES = 64 * 2**20
_WORDS = "The quick brown fox, 42 years old, jumps over the lazy dog's naïve neighbour. "
_BOUND_MS = 100.0


_TOKEN_IDS = [*range(256, 40_256)] * 40
_Call = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True)
class Load:
    """``num_callers`` make ``call`` again and again; what it is answered does not matter."""

    name: str
    num_callers: int
    call: _Call


def _text(num_bytes: int) -> str:
    return (_WORDS * (num_bytes // len(_WORDS) + 1))[:num_bytes]


async def _stream(stub: Any) -> None:
    request = pb.GenerateRequest(text="hi", sampling_params=SamplingParams(max_tokens=5000, ignore_eos=True))
    async for _ in stub.GenerateStream(request):
        pass


def _generate(request: pb.GenerateRequest) -> _Call:
    request.sampling_params.max_tokens = 1

    async def call(stub: Any) -> None:
        await stub.Generate(request)

    return call


def _with_params(params: SamplingParams) -> _Call:
    return _generate(pb.GenerateRequest(text="hi", sampling_params=params))


async def _tokenize(stub: Any) -> None:
    await stub.Tokenize(pb.TokenizeRequest(text=_text(10**6), return_tokens=True))


async def _detokenize(stub: Any) -> None:
    await stub.Detokenize(pb.DetokenizeRequest(token_ids=_TOKEN_IDS))


def _loads() -> list[Load]:
    million, strings = range(10**6), ["x"] * 10**6
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content=_text(500)) for _ in range(4000)])
    rows = pb.PromptEmbeds(data=bytes(6510 * 576 * 4), num_tokens=6510, hidden_size=576)
    long_text = pb.GenerateRequest(text=_text(8 * 10**6), sampling_params=SamplingParams(truncate_prompt_tokens=-1))
    return [
        Load("nothing", 0, _stream),
        Load("256 streams", 256, _stream),
        Load("1,000 streams", 1000, _stream),
        Load("text, 1 MB", 8, _generate(pb.GenerateRequest(text=_text(10**6)))),
        Load("text, 15 MB", 4, _generate(pb.GenerateRequest(text=_text(15 * 10**6)))),
        Load("text, 8 MB, truncated", 4, _generate(long_text)),
        Load("chat, 4,000 messages of 500 bytes", 8, _generate(pb.GenerateRequest(chat=chat))),
        Load("1,600,000 token ids", 4, _generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=_TOKEN_IDS)))),
        Load("embeddings, 15 MB", 4, _generate(pb.GenerateRequest(prompt_embeds=rows))),
        Load("1,000,000 of logit_bias", 4, _with_params(SamplingParams(logit_bias=dict.fromkeys(million, 1.0)))),
        Load("1,000,000 stop strings", 4, _with_params(SamplingParams(stop=strings))),
        Load("1,000,000 stop tokens", 4, _with_params(SamplingParams(stop_token_ids=million))),
        Load("JSON schema, 10 MB", 4, _with_params(SamplingParams(json_schema="[" * 10**7))),
        Load("1,000,000 choices", 4, _with_params(SamplingParams(choice=Choice(choices=strings)))),
        Load("text to tokens, 1 MB", 8, _tokenize),
        Load("1,600,000 tokens to text", 4, _detokenize),
    ]


def _put_load(address: str, name: str, begun: Any) -> None:
    """The child process: until it is ended."""
    (load,) = (load for load in _loads() if load.name == name)
    asyncio.run(_call_for_ever(address, load, begun))


async def _call_for_ever(address: str, load: Load, begun: Any) -> None:
    options = [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub = InferenceServiceStub(channel)
        seen: set[str] = set()

        async def call_again() -> None:
            while True:
                try:
                    await load.call(stub)
                    answer = "OK"
                except grpc.aio.AioRpcError as error:
                    answer = f"{error.code().name}: {str(error.details())[:100]}"
                if answer not in seen and len(seen) < 3:
                    seen.add(answer)
                    click.echo(f"  {load.name}: {answer}", err=True)

        callers = [asyncio.ensure_future(call_again()) for _ in range(load.num_callers)]
        await asyncio.sleep(1)
        begun.set()
        await asyncio.gather(*callers)


async def _probe(address: str, seconds: float, interval_s: float) -> list[float]:
    """How long each Check took, in milliseconds."""
    taken_ms = []
    async with grpc.aio.insecure_channel(address) as channel:
        health = HealthStub(channel)
        await health.Check(HealthCheckRequest())
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.monotonic()
            await health.Check(HealthCheckRequest())
            taken_ms.append((time.monotonic() - start) * 1e3)
            await asyncio.sleep(interval_s)
    return taken_ms


def _measured(address: str, name: str, seconds: float) -> list[float]:
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    child = context.Process(target=_put_load, args=(address, name, begun), daemon=True)
    child.start()
    try:
        begun.wait(60)
        return asyncio.run(_probe(address, seconds, 0.01))
    finally:
        child.kill()
        child.join()


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, help="For each load.")
@click.option("--pace", type=click.FloatRange(min=0), default=10.0, help="Tokens/s of each stream.")
@click.option("--only", multiple=True, metavar="TEXT", help="Loads whose name has this text. Repeatable.")
@model_option
def main(seconds: float, pace: float, only: tuple[str, ...], model: Path) -> None:
    """Measure health checks under loads of many kinds."""
    table = Table("load", "checks", "p50 ms", "p99 ms", "max ms", f"> {_BOUND_MS:g} ms")
    core = ["--tokens-per-second", str(pace), "--max-model-len", "2000000"]
    gateway = ours("sluicegate gateway", GENERATE_STREAM)
    with tempfile.TemporaryDirectory() as folder, running(gateway, model, Path(folder), *core) as server:
        for load in _loads():
            if not only or any(text in load.name for text in only):
                taken_ms = np.array(_measured(f"127.0.0.1:{server.place.port}", load.name, seconds))
                p50, p99 = np.percentile(taken_ms, (50, 99))
                figures = [f"{ms:.1f}" for ms in (p50, p99, taken_ms.max())]
                table.add_row(load.name, str(len(taken_ms)), *figures, str((taken_ms > _BOUND_MS).sum()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
