"""Gateways as processes with all that protects them: addresses of every policy, and what the log says of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from smg_grpc_proto.generated.common_pb2 import FlushCacheRequest
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from service.models import ModelFiles
from sluicegate.v1 import control_service_pb2 as control_pb
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.service.errors_of_calls import error_of
from tests.service.gateway_process import PythonProcess
from tests.service.metrics.scrape import scrape_async
from tests.service.security.certificate_files import channel_credentials, write_authority, write_pair
from tests.service.security.whoami import bearer

KEY, ADMIN_KEY = "client-0123456789", "operator-0123456789"
REQUEST = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 3, "ignore_eos": True})


@asynccontextmanager
async def secured(model: ModelFiles, folder: Path, *flags: str) -> AsyncIterator[PythonProcess]:
    """A gateway with ``flags``, and a core without a model."""
    handshake = f"--handshake-address=ipc://{folder}/handshake"
    async with (
        PythonProcess(folder, "service", "gateway", str(model.path), handshake, *flags) as gateway,
        PythonProcess(folder, "bench.null_core", handshake, "--headless", "--token-ids", "97"),
    ):
        yield gateway


@pytest.mark.parametrize("num_workers", [1, 2])
async def test_every_address(byte_model: ModelFiles, short_folder: Path, num_workers: int) -> None:
    """Clients with certificate and key, neighbours, probes and operators, each by their address, at every worker."""
    servers, clients = trustme.CA(), trustme.CA()
    tls = write_pair(servers, short_folder)
    (short_folder / "keys").write_text(f"alice:{KEY}\n")
    (short_folder / "admin").write_text(f"root:{ADMIN_KEY}\n")
    flags = [
        f"--gateway-workers={num_workers}",
        f"--tls-cert={tls.cert}",
        f"--tls-key={tls.key}",
        f"--tls-client-ca={write_authority(clients, short_folder)}",
        f"--api-key-file={short_folder}/keys",
        f"--admin-key-file={short_folder}/admin",
        "--grpc-address=127.0.0.1:0",
        "--plaintext-address=127.0.0.1:0",
        f"--plaintext-address=unix:{short_folder}/sidecar",
        "--health-address=127.0.0.1:0",
        "--admin-address=127.0.0.1:0",
        "--metrics-address=127.0.0.1:0",
    ]
    async with secured(byte_model, short_folder, *flags) as gateway:
        guarded, plaintext, sidecar = (await gateway.until_ready()).split(",")
        for _ in range(4 * num_workers):  # Whichever worker the connection comes to.
            options = [("grpc.use_local_subchannel_pool", 1)]
            credentials = channel_credentials(servers, clients)
            async with grpc.aio.secure_channel(guarded, credentials, options) as channel:
                stub = InferenceServiceStub(channel)
                answer = await stub.Generate(REQUEST, metadata=(bearer(KEY),), timeout=30)
                assert answer.usage.num_output_tokens == 3
                refused = await error_of(stub.Generate(REQUEST, metadata=(bearer(ADMIN_KEY),), timeout=30))
                assert refused.code is grpc.StatusCode.UNAUTHENTICATED
                flushed = VllmEngineStub(channel).FlushCache(FlushCacheRequest(), metadata=(bearer(KEY),), timeout=30)
                assert (await error_of(flushed)).code is grpc.StatusCode.PERMISSION_DENIED
        async with grpc.aio.secure_channel(guarded, channel_credentials(servers)) as channel:
            unknown = InferenceServiceStub(channel).Generate(REQUEST, metadata=(bearer(KEY),), timeout=30)
            assert (await error_of(unknown)).code is grpc.StatusCode.UNAVAILABLE
        for address in (plaintext, sidecar):
            async with grpc.aio.insecure_channel(address) as channel:
                assert (await InferenceServiceStub(channel).Generate(REQUEST, timeout=30)).usage.num_output_tokens == 3
                assert (await VllmEngineStub(channel).FlushCache(FlushCacheRequest(), timeout=30)).success
        probe_address = (await gateway.until_logged(r"health on (\S+)")).group(1)
        async with grpc.aio.insecure_channel(probe_address) as channel:
            health = await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="readiness"), timeout=30)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            nothing = await error_of(InferenceServiceStub(channel).Generate(REQUEST, timeout=30))
            assert nothing.code is grpc.StatusCode.UNIMPLEMENTED
        async with grpc.aio.insecure_channel(await gateway.admin_address()) as channel:
            control = ControlServiceStub(channel)
            info = control_pb.GetServerInfoRequest()
            assert (await control.GetServerInfo(info, metadata=(bearer(ADMIN_KEY),), timeout=30)).model
            assert (await error_of(control.GetServerInfo(info, timeout=30))).code is grpc.StatusCode.UNAUTHENTICATED
        metrics_address = (await gateway.until_logged(r"metrics on http://(\S+)/metrics")).group(1)
        exposed = await scrape_async(metrics_address)
        assert "sluicegate:tls_certificate_expiry_timestamp_seconds" in exposed.names
        assert exposed.value("sluicegate:calls_by_key_total", key_name="alice") == 8 * num_workers


async def test_what_others_can_reach_is_said(byte_model: ModelFiles, short_folder: Path) -> None:
    """A plaintext address open to other machines is a warning; so is a file of keys that everyone can read."""
    keys = short_folder / "keys"
    keys.write_text(f"alice:{KEY}\n")
    keys.chmod(0o644)
    flags = "--grpc-address=127.0.0.1:0", "--admin-address=127.0.0.1:0", "--metrics-address=off"
    plaintext = "--plaintext-address=0.0.0.0:0"
    async with secured(byte_model, short_folder, *flags, plaintext, f"--api-key-file={keys}") as gateway:
        await gateway.until_ready()
        assert "plaintext_address 0.0.0.0:0: other machines can reach it, without TLS and without a key" in gateway.log
        assert f"everyone on this machine can read {keys}: chmod o-r" in gateway.log


async def test_files_that_are_not_there(byte_model: ModelFiles, short_folder: Path) -> None:
    """They end the start with one line that names them; an open admin address ends it before that."""
    missing = f"--tls-cert={short_folder}/c", f"--tls-key={short_folder}/k"
    async with secured(byte_model, short_folder, *missing) as gateway:
        assert await gateway.exit_code() == 1
        assert f"cannot read {short_folder}/c: No such file or directory" in gateway.log
        assert "Traceback" not in gateway.log
    async with secured(byte_model, short_folder, "--admin-address=0.0.0.0:0") as gateway:
        assert await gateway.exit_code() == 2
        assert "--admin-address can be reached from other machines: it needs --tls-cert" in gateway.log
