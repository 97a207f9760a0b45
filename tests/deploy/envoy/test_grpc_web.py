"""gRPC-Web, byte by byte, as a browser sends it to Envoy with the shipped configuration."""

import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage

import pytest

from sluicegate.v1.inference_service_pb2 import GenerateRequest, GenerateStreamResponse
from sluicegate_client import Client
from tests.deploy.envoy.null_server import NullServer
from tests.deploy.envoy.proxy import Envoy, proxying, set_backends, set_page, shipped

ALLOWED, OTHER = "http://localhost:8080", "http://elsewhere.example"
STREAM = "sluicegate.v1.InferenceService/GenerateStream"
_TRAILERS = 0x80


@pytest.fixture(scope="module")
def envoy(server: NullServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Envoy]:
    folder = tmp_path_factory.mktemp("envoy")
    page = folder / "index.html"
    page.write_text("<title>A page</title>")
    config = shipped("grpc-web.yaml")
    set_page(config, page)
    set_backends(config, [server.address])
    with proxying(config, folder) as envoy:
        yield envoy


def _call(envoy: Envoy, request: GenerateRequest, origin: str = ALLOWED) -> tuple[HTTPMessage, bytes]:
    """Headers and body of an answer."""
    message = request.SerializeToString()
    body = struct.pack(">BI", 0, len(message)) + message
    headers = {"content-type": "application/grpc-web+proto", "x-grpc-web": "1", "origin": origin}
    ask = urllib.request.Request(f"http://{envoy.address}/{STREAM}", body, headers)
    with urllib.request.urlopen(ask, timeout=60) as answer:
        return answer.headers, answer.read()


def _frames(body: bytes) -> Iterator[tuple[int, bytes]]:
    while body:
        kind, length = struct.unpack(">BI", body[:5])
        yield kind, body[5 : 5 + length]
        body = body[5 + length :]


def _trailers(body: bytes) -> dict[str, str]:
    text = b"".join(payload for kind, payload in _frames(body) if kind & _TRAILERS).decode()
    return dict(line.split(":", 1) for line in text.split("\r\n") if line)


def _preflight(envoy: Envoy, origin: str) -> HTTPMessage:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-grpc-web",
    }
    ask = urllib.request.Request(f"http://{envoy.address}/{STREAM}", None, headers, method="OPTIONS")
    with urllib.request.urlopen(ask, timeout=60) as answer:
        message: HTTPMessage = answer.headers
        return message


def test_a_stream_is_the_one_that_grpc_gives(envoy: Envoy, client: Client) -> None:
    """Its deltas make the same text, and its trailers, the last frame, say that all went well."""
    request = GenerateRequest(text="The capital of France is", sampling_params={"max_tokens": 40})
    _, body = _call(envoy, request)
    events = [GenerateStreamResponse.FromString(payload) for kind, payload in _frames(body) if not kind & _TRAILERS]
    text = "".join(event.delta.text for event in events)
    assert text == client.generate("The capital of France is", max_tokens=40).outputs[0].text
    assert _trailers(body)["grpc-status"] == "0"


def test_an_error_comes_with_its_details(envoy: Envoy) -> None:
    """Status, message and details are where a page can read them: in headers that are exposed."""
    headers, body = _call(envoy, GenerateRequest(text="x", sampling_params={"temperature": 3}))
    found = {name.lower(): value for name, value in headers.items()} | _trailers(body)
    assert found["grpc-status"] == "3"
    assert "temperature" in found["grpc-message"]
    assert found["grpc-status-details-bin"]
    exposed = headers["access-control-expose-headers"]
    assert {name.strip() for name in exposed.split(",")} >= {"grpc-status", "grpc-message", "grpc-status-details-bin"}


def test_large_prompts_pass(envoy: Envoy) -> None:
    """It is the server that says what is too long."""
    headers, body = _call(envoy, GenerateRequest(text="x" * (15 << 20)))
    found = {name.lower(): value for name, value in headers.items()} | _trailers(body)
    assert found["grpc-status"] == "3"
    assert "must have at most" in found["grpc-message"]


def test_pages_of_named_sites_may_call(envoy: Envoy) -> None:
    """Their browsers are told so, with the headers that they may send."""
    allowed = _preflight(envoy, ALLOWED)
    assert allowed["access-control-allow-origin"] == ALLOWED
    assert "authorization" in allowed["access-control-allow-headers"]


def test_pages_of_other_sites_may_not_call(envoy: Envoy) -> None:
    """Nothing allows it, so their browsers show them nothing."""
    headers, _ = _call(envoy, GenerateRequest(text="x", sampling_params={"max_tokens": 1}), origin=OTHER)
    assert headers["access-control-allow-origin"] is None


def test_names_that_lead_here_are_named(envoy: Envoy) -> None:
    """A site cannot have its own name lead to this Envoy, so that its pages would be of the same site as it."""
    ask = urllib.request.Request(f"http://{envoy.address}/{STREAM}", b"", {"host": "rebound.example"})
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(ask, timeout=60)


def test_the_page_is_at_the_root(envoy: Envoy) -> None:
    """As HTML that nobody frames; other paths are not there."""
    with urllib.request.urlopen(f"http://{envoy.address}/", timeout=60) as answer:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.read() == b"<title>A page</title>"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"http://{envoy.address}/sluicegate.v1.ControlService/Drain", timeout=60)
