"""The TLS that docs/load-balancing.md shows, on both sides of Envoy."""

import re
from pathlib import Path
from typing import Any

import grpc
import trustme
import yaml

from service.models import ModelFiles
from sluicegate.v1.inference_service_pb2 import GenerateRequest
from sluicegate.v1.inference_service_pb2_grpc import InferenceServiceStub
from tests.deploy.envoy.null_server import null_serving
from tests.deploy.envoy.proxy import ROOT, proxying, set_backends, shipped
from tests.service.security.certificate_files import channel_credentials, write_authority, write_pair


def _shown(folder: Path) -> list[dict[str, Any]]:
    """What the document shows, with the files in ``folder`` and the name that a test's certificates have."""
    text = (ROOT / "docs/load-balancing.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [
        yaml.safe_load(re.sub("/etc/envoy", str(folder), block).replace("sluicegate.example", "localhost"))
        for block in blocks
    ]


def test_tls_on_both_sides(byte_model: ModelFiles, tmp_path: Path) -> None:
    """A client that trusts Envoy's authority is served by a server that has nothing but TLS, and is found healthy."""
    authority = trustme.CA()
    write_authority(authority, tmp_path)
    files = write_pair(authority, tmp_path)
    config = shipped("load-balancer.yaml")
    downstream, upstream = _shown(tmp_path)
    config["static_resources"]["listeners"][0]["filter_chains"][0] |= downstream
    config["static_resources"]["clusters"][0] |= upstream
    with null_serving(byte_model, "abc", "--tls-cert", str(files.cert), "--tls-key", str(files.key)) as server:
        set_backends(config, [server.address])
        with proxying(config, tmp_path) as envoy:
            with grpc.secure_channel(envoy.address, channel_credentials(authority)) as channel:
                request = GenerateRequest(text="hi", sampling_params={"max_tokens": 3})
                answer = InferenceServiceStub(channel).Generate(request, wait_for_ready=True, timeout=60)
            assert len(answer.outputs[0].text) == 3
            assert "health_check.failure: 0" in envoy.ask("stats?filter=health_check.failure")
