"""Cores on tcp with CURVE keys, each a process, their coordinator, and the gateway."""

from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from core.wire.curve import read_pair, read_public, write_pair
from service.cli.gateway import gateway as gateway_command
from service.cli.keys import keys as keys_command
from service.models import ModelFiles
from sluicegate.v1 import inference_service_pb2 as pb
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.core.data_parallel.lockstep_core import __name__ as lockstep_core
from tests.service.gateway_process import PythonProcess

ADDRESSES = ["--grpc-address=127.0.0.1:0", "--admin-address=127.0.0.1:0", "--metrics-address=off"]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with those of the gateway, and those of cores, which it knows, beside."""
    write_pair(tmp_path / "keys", "gateway")
    for rank in range(2):
        write_pair(tmp_path / "keys/cores", f"core{rank}")
    return tmp_path / "keys"


def gateway_of(model: ModelFiles, folder: Path, keys: Path, port: int, *flags: str) -> PythonProcess:
    curve = f"--curve-key={keys}/gateway.key_secret", f"--curve-core-keys={keys}/cores"
    address = f"--handshake-address=tcp://127.0.0.1:{port}"
    return PythonProcess(folder, "service", "gateway", str(model.path), address, *curve, *ADDRESSES, *flags)


def core_of(folder: Path, port: int, module: str, *flags: str) -> PythonProcess:
    return PythonProcess(folder, module, f"--handshake-address=tcp://127.0.0.1:{port}", "--headless", *flags)


def curve_of(keys: Path, secret: Path) -> tuple[str, str]:
    return f"--curve-key={secret}", f"--curve-gateway-key={keys}/gateway.key"


async def test_every_socket(byte_model: ModelFiles, tmp_path: Path, keys: Path, unused_tcp_port: int) -> None:
    """Two ranks in lockstep with their coordinator, all with keys and over tcp: requests at both are answered."""
    lockstep = "--data-parallel-size=2", "--data-parallel-lockstep"
    async with AsyncExitStack() as processes:
        gateway = gateway_of(byte_model, tmp_path, keys, unused_tcp_port, *lockstep)
        await processes.enter_async_context(gateway)
        for rank in range(2):
            curve = curve_of(keys, keys / f"cores/core{rank}.key_secret")
            core = core_of(tmp_path, unused_tcp_port, lockstep_core, f"--data-parallel-rank={rank}", *curve)
            await processes.enter_async_context(core)
        async with grpc.aio.insecure_channel(await gateway.until_ready()) as channel:
            for rank in (0, 1, 0):
                params = {"max_tokens": 5, "ignore_eos": True}
                request = pb.GenerateRequest(text="hi", sampling_params=params, data_parallel_rank=rank)
                answer = await InferenceServiceStub(channel).Generate(request, timeout=60)
                assert answer.usage.num_output_tokens == 5
        assert read_pair(keys / "gateway.key_secret").secret.decode() not in gateway.log


async def test_strangers(byte_model: ModelFiles, tmp_path: Path, keys: Path, unused_tcp_port: int) -> None:
    """Cores without keys, or with keys that the gateway has not, are refused, and both say so; the right one serves."""
    _, unknown = write_pair(tmp_path, "unknown")
    async with (
        gateway_of(byte_model, tmp_path, keys, unused_tcp_port) as gateway,
        core_of(tmp_path, unused_tcp_port, "bench.null_core") as without,
    ):
        await without.until_logged("no connection to .* CURVE keys")
        await gateway.until_logged("a peer was refused: .* CURVE keys")
        async with core_of(tmp_path, unused_tcp_port, "bench.null_core", *curve_of(keys, unknown)) as stranger:
            assert await stranger.exit_code() == 1
            assert "the key of the core is not among those that the gateway lets in" in stranger.log
        await gateway.until_logged("refused: a peer has the key")
        assert read_public(tmp_path / "unknown.key").decode() in gateway.log
        right = curve_of(keys, keys / "cores/core0.key_secret")
        async with core_of(tmp_path, unused_tcp_port, "bench.null_core", *right):
            await gateway.until_ready()


async def test_gateway_workers(byte_model: ModelFiles, tmp_path: Path, keys: Path, unused_tcp_port: int) -> None:
    """Each process of the gateway asks for keys at its own sockets, and the core has the same for all."""
    curve = curve_of(keys, keys / "cores/core0.key_secret")
    async with (
        gateway_of(byte_model, tmp_path, keys, unused_tcp_port, "--gateway-workers=2") as gateway,
        core_of(tmp_path, unused_tcp_port, "bench.null_core", "--token-ids=97", *curve),
    ):
        address = await gateway.until_ready()
        request = pb.GenerateRequest(text="hi", sampling_params={"max_tokens": 3, "ignore_eos": True})
        for _ in range(8):  # Whichever process the connection comes to.
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(address, options) as channel:
                answer = await InferenceServiceStub(channel).Generate(request, timeout=30)
                assert answer.usage.num_output_tokens == 3


def test_flags(byte_model: ModelFiles) -> None:
    """CURVE takes both flags and a tcp address."""
    model = str(byte_model.path)
    for flags, message in {
        ("tcp://127.0.0.1:1", "--curve-key=k"): "CURVE needs both --curve-key and --curve-core-keys",
        ("ipc:///x", "--curve-key=k", "--curve-core-keys=c"): "--curve-key is for a --handshake-address at tcp://",
    }.items():
        result = CliRunner().invoke(gateway_command, [model, "--handshake-address", *flags])
        assert result.exit_code == 2
        assert message in result.output


async def test_keys_that_cannot_be_read(byte_model: ModelFiles, tmp_path: Path, keys: Path) -> None:
    """They end the start of gateway and core with one line that names the file."""
    async with gateway_of(byte_model, tmp_path, keys / "none", 1) as gateway:
        assert await gateway.exit_code() == 1
        assert f"{keys}/none/gateway.key_secret holds no CURVE key" in gateway.log
        assert "Traceback" not in gateway.log
    for flags, message in (
        (curve_of(keys, keys / "cores/core0.key"), "core0.key holds no secret key"),
        (("--curve-key=x",), "CURVE needs both --curve-key and --curve-gateway-key"),
    ):
        async with core_of(tmp_path, 1, "bench.null_core", *flags) as core:
            assert await core.exit_code() != 0
            assert message in core.log


def test_making_keys(tmp_path: Path) -> None:
    """`sluicegate keys` writes a pair for each name, never over another, and nowhere but into its folder."""
    result = CliRunner().invoke(keys_command, ["a", "b", "--folder", str(tmp_path)])
    assert result.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.key", "a.key_secret", "b.key", "b.key_secret"}
    assert CliRunner().invoke(keys_command, ["a", "--folder", str(tmp_path)]).exit_code == 1
    assert CliRunner().invoke(keys_command, ["../x", "--folder", str(tmp_path)]).exit_code == 2
