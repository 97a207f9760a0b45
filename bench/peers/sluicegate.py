"""Ours: ``sluicegate serve`` of this tree, gateway and core, asked over gRPC."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import grpc

from bench.load import RequestRecord, Sender, closed_loop
from bench.peers.peer import Engine, Family, Peer, PeerError, Place, Prompts
from bench.server_process import ServerError, ServerProcess
from bench.workload import Workload
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.sampling_params_pb2 import SamplingParams
from sluicegate_client.channel import channel_options

_START_TIMEOUT_S = 300.0
_REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class _Served:
    pid: int
    send: Sender

    async def run(self, workload: Workload, prompts: Prompts) -> list[RequestRecord]:
        requests = [_request(prompt, workload.output_tokens) for prompt in prompts]
        return await closed_loop(self.send, requests, workload.concurrency)


def _request(prompt: Sequence[int], output_tokens: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(
        token_ids=pb.TokenIds(ids=prompt),
        sampling_params=SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True),
        output_options=pb.OutputOptions(token_ids=True),
    )


@asynccontextmanager
async def _start(place: Place, _setup: str, quantization: str) -> AsyncIterator[Engine]:
    addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", f"unix:{place.folder}/admin"]
    arguments = ["serve", str(place.model), *addresses, "--metrics-address", "off", "--quantization", quantization]
    with ServerProcess(arguments, environment=place.environment) as server:
        try:
            address = server.wait_until_ready(_START_TIMEOUT_S)
        except ServerError as error:
            raise PeerError(str(error)) from error
        async with grpc.aio.insecure_channel(address, channel_options(())) as channel:
            yield _Served(server.pid, Sender(channel, _REQUEST_TIMEOUT_S))


def _ours(family: Family, quantization: str) -> Peer:
    return Peer(
        f"sluicegate-{quantization}",
        family,
        f"serve --quantization {quantization}; gRPC, token ids",
        partial(_start, quantization=quantization),
        is_ours=True,
    )


OURS = (_ours(Family.FLOAT32, "none"), _ours(Family.QUANTIZED, "auto"))
