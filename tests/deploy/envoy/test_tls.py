"""The TLS that docs/load-balancing.md shows, on both sides of Envoy."""

import re
from pathlib import Path
from typing import Any

import grpc
import trustme
import yaml

from bench.null_core import __name__ as null_core
from service.models import ModelFiles
from sluicegate.v1.inference_service_pb2 import GenerateRequest
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.deploy.envoy.proxy import ROOT, proxying, set_backends, shipped
from tests.service.gateway_process import PythonProcess
from tests.service.security.certificate_files import channel_credentials, write_authority, write_pair


def _shown(folder: Path) -> list[dict[str, Any]]:
    """What the document shows, with the files in ``folder`` and the name that a test's certificates have."""
    text = (ROOT / "docs/load-balancing.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        yaml.safe_load(re.sub("/etc/envoy", str(folder), block).replace("sluicegate.example", "localhost"))
        for block in blocks
    ]


async def test_tls_on_both_sides(byte_model: ModelFiles, tmp_path: Path, short_folder: Path) -> None:
    """A client that trusts Envoy's authority is served by a server that has nothing but TLS, and is found healthy."""
    authority = trustme.CA()
    write_authority(authority, tmp_path)
    files = write_pair(authority, tmp_path)
    config = shipped("load-balancer.yaml")
    downstream, upstream = _shown(tmp_path)
    config["static_resources"]["listeners"][0]["filter_chains"][0] |= downstream
    config["static_resources"]["clusters"][0] |= upstream
    handshake = ["--handshake-address", f"ipc://{short_folder}/handshake"]
    flags = ["--grpc-address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0", "--metrics-address", "off"]
    flags += ["--tls-cert", str(files.cert), "--tls-key", str(files.key)]
    gateway = PythonProcess(tmp_path, "service", "gateway", str(byte_model.path), *handshake, *flags)
    core = PythonProcess(tmp_path, null_core, *handshake, "--token-ids", "97,98,99")
    async with gateway, core:
        set_backends(config, [await gateway.until_ready()])
        with proxying(config, tmp_path) as envoy:
            async with grpc.aio.secure_channel(envoy.address, channel_credentials(authority)) as channel:
                request = GenerateRequest(text="hi", sampling_params={"max_tokens": 3})
                answer = await InferenceServiceStub(channel).Generate(request, wait_for_ready=True, timeout=60)
            assert len(answer.outputs[0].text) == 3
            assert "health_check.failure: 0" in envoy.ask("stats?filter=health_check.failure")
