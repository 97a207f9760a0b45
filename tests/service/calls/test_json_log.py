"""The whole log of a gateway process, as JSON."""

import json
from pathlib import Path

import grpc
import pytest

from core.wire.messages import EngineCoreOutput, FinishReason
from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.fake_core import FakeCore
from tests.service.gateway_process import PythonProcess

ODD = 'two\nlines "quoted" \u2028 \x00 \x1b[31m é'
SECRET = "the words of a prompt"


async def test_every_line_is_json(byte_model: ModelFiles, tmp_path: Path, short_folder: Path) -> None:
    """From start to end, whatever clients and core do: one object a line, with the id of the request, and no prompt."""
    flags = ["--log-format", "json", "--log-level", "debug", "--access-log", "--metrics-address", "off"]
    addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", f"unix:{short_folder}/a"]
    handshake = ["--handshake-address", f"ipc://{short_folder}/h"]
    process = PythonProcess(tmp_path, "service", "gateway", str(byte_model.path), *flags, *addresses, *handshake)
    async with process, FakeCore() as core:
        await core.shake_hands(handshake[1])
        async with grpc.aio.insecure_channel(await process.until_ready()) as channel:
            inference = InferenceServiceStub(channel)
            for request in (pb.GenerateRequest(request_id=ODD, text=SECRET), pb.GenerateRequest(model=ODD)):
                with pytest.raises(grpc.aio.AioRpcError):
                    await inference.Generate(request)
            answers = [inference.Generate(pb.GenerateRequest(request_id=f"r{i}", text=SECRET)) for i in range(2)]
            ids = sorted([(await core.receive_add()).request_id for _ in answers])
            core.emit(EngineCoreOutput(ids[0], [100_000]), EngineCoreOutput(ids[1], [], None))
            core.emit_token(ids[1], 65, FinishReason.LENGTH)
            core.send_frames([b"no message"])
            with pytest.raises(grpc.aio.AioRpcError):
                await answers[0]
            await answers[1]
        process.send_signal(15)
        assert await process.exit_code() == 0
    entries = [json.loads(line) for line in process.log.splitlines()]
    assert all({"time", "level", "logger", "message"} <= entry.keys() for entry in entries)
    assert {entry.get("request_id") for entry in entries} == {None, "r0", "r1"}
    assert {"service.access", "service.servicers.edge", "service.server"} <= {entry["logger"] for entry in entries}
    assert SECRET not in process.log
