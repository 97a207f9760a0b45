"""Clients that others wrote, streaming from the running server: `buf curl`, `grpcurl`, and grpc-js in Node."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate_client import Client
from tests.e2e.server import Server, serving

pytestmark = pytest.mark.interop

BUF = Path(sys.executable).with_name("buf")
METHOD = "sluicegate.v1.InferenceService/GenerateStream"
PARIS = {"text": "The capital of France is", "samplingParams": {"temperature": 0, "maxTokens": 8}}
TOP_P = "sampling_params.top_p: must be in (0, 1], got 3.0"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def text(server: Server) -> str:
    """The answer that our own client gets."""
    with Client(server.address) as client:
        return client.generate(PARIS["text"], temperature=0, max_tokens=8).text


def run(*command: str | Path, code: int = 0) -> str:
    """What it prints on both streams; ``code`` is how it is to end."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    print("$", *command, done.stdout, done.stderr, sep="\n")
    return done.stdout + done.stderr


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON documents that ``text`` is, one after another."""
    decoder, found = json.JSONDecoder(), []
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"].get("text", "") for event in events if "delta" in event)


def test_buf_curl(server: Server, text: str) -> None:
    """By reflection: every message of the stream, the names of services, and the status of a wrong request."""
    buf = [BUF, "curl", "--http2-prior-knowledge", "--protocol", "grpc"]
    listed = run(*buf, "--list-services", f"http://{server.address}")
    assert "sluicegate.v1.InferenceService" in listed
    assert "vllm.grpc.engine.VllmEngine" in listed
    events = documents(run(*buf, "-d", json.dumps(PARIS), f"http://{server.address}/{METHOD}"))
    assert text_of(events) == text
    assert events[-1]["finished"]["finishReason"] == "FINISH_REASON_LENGTH"
    wrong = json.dumps(PARIS | {"samplingParams": {"topP": 3}})
    assert TOP_P in run(*buf, "-d", wrong, f"http://{server.address}/{METHOD}", code=3 * 8)


def test_buf_curl_with_the_later_reflection(server: Server, text: str) -> None:
    """grpc.reflection.v1, too."""
    buf = [BUF, "curl", "--http2-prior-knowledge", "--protocol", "grpc", "--reflect-protocol", "grpc-v1"]
    assert text_of(documents(run(*buf, "-d", json.dumps(PARIS), f"http://{server.address}/{METHOD}"))) == text


def test_grpcurl(server: Server, text: str, grpcurl_program: Path) -> None:
    """By reflection; it also decodes the details of an error."""
    grpcurl = [grpcurl_program, "-plaintext"]
    events = documents(run(*grpcurl, "-d", json.dumps(PARIS), server.address, METHOD))
    assert text_of(events) == text
    wrong = json.dumps(PARIS | {"samplingParams": {"topP": 3}})
    refused = run(*grpcurl, "-d", wrong, server.address, METHOD, code=64 + 3)
    assert "google.rpc.BadRequest" in refused
    assert TOP_P in refused
    endless = json.dumps({"text": "x", "samplingParams": {"maxTokens": 4000, "ignoreEos": True}})
    assert "DeadlineExceeded" in run(*grpcurl, "-max-time", "1", "-d", endless, server.address, METHOD, code=64 + 4)
    server.wait_until_idle()


@pytest.mark.parametrize("mode", ["stream", "cancel", "refused"])
def test_node(server: Server, text: str, node_modules: Path, mode: str) -> None:
    """grpc-js from the proto files: a stream to its end, one that is left, and one that is refused."""
    script = shutil.copy("tests/interop/stream.js", node_modules.parent)
    googleapis = next(Path(path) for path in sys.path if (Path(path) / "google/rpc/status.proto").exists())
    (answer,) = documents(run("node", script, server.address, "proto", googleapis, mode))
    if mode == "stream":
        usage = {"numPromptTokens": 5, "numOutputTokens": 8}
        assert answer == {"text": text, "reason": "FINISH_REASON_LENGTH", "usage": usage}
    elif mode == "cancel":
        assert answer["code"] == "CANCELLED"
        server.wait_until_idle()
    else:
        assert answer == {"code": "INVALID_ARGUMENT", "details": TOP_P}
