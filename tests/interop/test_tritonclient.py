"""The stock tritonclient, in an environment of its own: its protobuf is older than ours."""

import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluicegate_client import Client
from tests.e2e.server import MODEL, Server, serving
from tests.interop.reference import CAPITAL, LOGPROB_TOLERANCE

pytestmark = pytest.mark.interop

SCRIPT = Path(__file__).with_name("triton_calls.py")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


def call(python: Path, server: Server, name: str) -> Any:
    """What ``triton_calls`` prints."""
    command = [python, SCRIPT, server.address, MODEL, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    print("$ triton", name, done.stdout, done.stderr, sep="\n")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def continued(server: Server, prompt: str, **sampling: Any) -> str:
    """The answer that our own client gets."""
    with Client(server.address) as client:
        return client.generate(prompt, temperature=0, max_tokens=8, ignore_eos=True, **sampling).text


def test_about(server: Server, triton_python: Path) -> None:
    """Who is there, what it takes, and that one request has many responses."""
    found = call(triton_python, server, "about")
    inputs = found.pop("inputs")
    assert inputs[:3] == ["text_input", "stream", "sampling_parameters"]
    assert found == {
        "live": True,
        "ready": True,
        "model_ready": True,
        "other_ready": False,
        "server": "sluicegate",
        "decoupled": True,
        "repository": ["READY"],
        "statistics": MODEL,
    }


def test_infer(server: Server, triton_python: Path) -> None:
    """One answer with all that can be returned, from the tensor or the parameters; n gives n elements."""
    found = call(triton_python, server, "infer")
    text = continued(server, CAPITAL["prompt_text"])
    full = found["full"]
    assert found["id"] == "r1"
    assert full["text_output"] == [CAPITAL["prompt_text"] + text]
    assert full["finish_reason"] == ["length"]
    assert full["num_input_tokens"] == [len(CAPITAL["prompt_token_ids"])]
    assert full["num_output_tokens"] == [8]
    tokens = json.loads(full["logprobs"][0])
    assert [int(next(iter(token))) for token in tokens] == CAPITAL["greedy_token_ids"][:8]
    logprobs = [next(iter(token.values()))["logprob"] for token in tokens]
    assert full["cumulative_logprob"][0] == pytest.approx(math.fsum(logprobs), abs=LOGPROB_TOLERANCE)
    assert "".join(next(iter(token.values()))["decoded_token"] for token in tokens) == text
    assert len(found["bare"]["text_output"]) == 1
    assert not found["bare"]["text_output"][0].startswith(CAPITAL["prompt_text"])
    assert [text.startswith(CAPITAL["prompt_text"]) for text in found["several"]["text_output"]] == [True] * 3
    assert found["several"]["num_output_tokens"] == [8] * 3


def test_stream(server: Server, triton_python: Path) -> None:
    """Several requests at once, each with its own text; the wrong one is told as an error, and nothing else is."""
    found = call(triton_python, server, "stream")
    assert found["texts"] == {name: continued(server, prompt) for name, prompt in found["prompts"].items()}
    assert found["counts"] == dict.fromkeys(found["prompts"], 8)
    assert found["reasons"] == dict.fromkeys(found["prompts"], "length")
    assert found["errors"] == ["sampling_parameters.top_p: must be in (0, 1], got 3.0"]


def test_errors(server: Server, triton_python: Path) -> None:
    """The status and the message, as the client raises them."""
    assert call(triton_python, server, "fail") == [
        ["StatusCode.NOT_FOUND", f"no model 'other'; this server serves '{MODEL}'"],
        ["StatusCode.INVALID_ARGUMENT", "sampling_parameters: must be a JSON object, got '\"[1]\"'"],
        ["StatusCode.INVALID_ARGUMENT", "text_input: must not be empty"],
    ]


def test_cancel(server: Server, triton_python: Path) -> None:
    """Nothing of it runs on, in the gateway or in the core."""
    found = call(triton_python, server, "cancel")
    assert found["first"] in ("a", "b")
    assert found["status"] == "StatusCode.CANCELLED"
    load = server.wait_until_idle()
    assert load.kv_cache_usage == 0


def test_the_example_of_the_documentation(server: Server, triton_python: Path) -> None:
    """It prints the answer, piece by piece."""
    page = (Path(__file__).parents[2] / "docs/kserve.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = example.replace("127.0.0.1:50051", server.address)
    done = subprocess.run([triton_python, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    with Client(server.address) as client:
        assert done.stdout == client.generate("Once upon a time", temperature=0, max_tokens=32).text
