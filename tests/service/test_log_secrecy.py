"""Nothing that callers say or show is in the log, at any level of ours: neither prompts nor answers nor keys."""

from contextlib import suppress
from pathlib import Path

import grpc
import psutil
import pytest

from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core.data_parallel.lockstep_core import __name__ as core_with_a_fake_model
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import PythonProcess
from tests.service.security.whoami import bearer

KEY, WRONG_KEY, MARKER = "key-MARKEDkey-0123456789", "wrong-MARKEDkey-0123456", "MARKEDprompt"
MARKS = "MARKEDkey", MARKER, MARKER.encode().hex(), ", ".join(str(byte) for byte in MARKER.encode())


def requests() -> list[pb.GenerateRequest]:
    """That are served, and that are refused for what they say, here and by the core."""
    chat = {"messages": [{"role": "user", "content": MARKER}]}
    few = {"max_tokens": 3}
    return [
        pb.GenerateRequest(text=MARKER, sampling_params=few, output_options={"echo_prompt_token_ids": True}),
        pb.GenerateRequest(text=MARKER, sampling_params=few | {"stop": [MARKER], "logprobs": 2}),
        pb.GenerateRequest(text=MARKER, sampling_params=few | {"regex": f"({MARKER}"}),
        pb.GenerateRequest(text=MARKER, sampling_params=few | {"json_schema": f'{{"type": "{MARKER}"}}'}),
        pb.GenerateRequest(text=MARKER, sampling_params=few | {"grammar": f"root ::= {MARKER}"}),
        pb.GenerateRequest(text=MARKER, sampling_params=few | {"bad_words": [MARKER], "stop": [""]}),
        pb.GenerateRequest(text=MARKER, sampling_params={"temperature": -1}, cache_salt=MARKER),
        pb.GenerateRequest(chat=chat, sampling_params=few),
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[*MARKER.encode()]), sampling_params=few),
        pb.GenerateRequest(token_ids=pb.TokenIds(ids=[*MARKER.encode(), 2**31]), sampling_params=few),
    ]


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_marked_words(byte_model: ModelFiles, short_folder: Path, log_format: str) -> None:
    """Requests with marked prompts, forms and keys leave no mark in the logs of both processes, nor their titles."""
    keys = short_folder / "keys"
    keys.write_text(f"alice:{KEY}\n")
    handshake = f"--handshake-address=ipc://{short_folder}/handshake"
    logs = "--log-level=debug", f"--log-format={log_format}"
    flags = ["--grpc-address=127.0.0.1:0", "--admin-address=127.0.0.1:0", "--metrics-address=off", "--access-log"]
    async with (
        PythonProcess(
            short_folder,
            "service",
            "gateway",
            *(str(byte_model.path), handshake, f"--api-key-file={keys}", *flags, *logs),
        ) as gateway,
        PythonProcess(short_folder, core_with_a_fake_model, handshake, "--headless", *logs) as core,
    ):
        async with grpc.aio.insecure_channel(await gateway.until_ready()) as channel:
            stub = InferenceServiceStub(channel)
            for request in requests():
                call = stub.GenerateStream(request, metadata=(bearer(KEY),), timeout=60)
                with suppress(grpc.aio.AioRpcError):
                    async for _ in call:
                        pass
                assert await call.code() in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
            refused = await error_of(stub.Generate(requests()[0], metadata=(bearer(WRONG_KEY),)))
            assert refused.code is grpc.StatusCode.UNAUTHENTICATED
            await gateway.until_logged("UNAUTHENTICATED")
        shown = [gateway.log, core.log]
        for process in (gateway, core):
            of = psutil.Process(process.pid)
            shown += [" ".join(of.cmdline()), of.name(), *of.environ().values()]
        found = [line for text in shown for line in text.splitlines() for mark in MARKS if mark in line]
        assert found == []
        assert "alice" in gateway.log
