"""Our gateway with vLLM's own core behind it: the second half of the promise that either side may be the other's."""

import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from bench.server_process import ServerProcess
from sluicegate.v1.control_service_pb2 import GetServerInfoRequest, Load, WatchLoadRequest
from sluicegate.v1.control_service_pb2_grpc import ControlServiceStub
from sluicegate_client import Client, FinishReason
from tests.interop import vllm_python
from tests.interop.dense_model import write_dense_smollm2
from tests.interop.packages import CACHE
from tests.interop.program import PATIENCE_S, Program, free_port
from tests.interop.reference import CAPITAL, ITALY, NUM_TOKENS, STORY, check_prompt, check_tokens
from tests.model_files import SMOLLM2_CASES

pytestmark = [pytest.mark.interop, pytest.mark.vllm_python, pytest.mark.timeout(5000)]

NUM_SEATS = 2
ENDLESS = {"max_tokens": 900, "ignore_eos": True, "temperature": 0}
DRAIN_S = 120


@dataclass(frozen=True)
class Served:
    """The gateway, where it serves, and the core that dialled it."""

    gateway: ServerProcess
    core: Program
    address: str
    admin_address: str

    def wait_until_idle(self) -> Load:
        """The load when no request is left."""
        with grpc.insecure_channel(self.admin_address) as channel:
            request = WatchLoadRequest(interval=Duration(nanos=100_000_000))
            for answer in ControlServiceStub(channel).WatchLoad(request, timeout=PATIENCE_S):
                if answer.load.num_requests == answer.load.num_running == answer.load.num_waiting == 0:
                    return answer.load
        raise AssertionError("WatchLoad ended")


@pytest.fixture(scope="module")
def served(vllm_interpreter: Path) -> Iterator[Served]:
    """One for all tests; the last one ends the core."""
    model = write_dense_smollm2(CACHE / "smollm2-135m-float32")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        admin_address = f"unix:{folder}/admin"
        addresses = ["--grpc-address", "127.0.0.1:0", "--admin-address", admin_address, "--metrics-address", ""]
        handshake = ["--handshake-address", f"tcp://127.0.0.1:{port}"]
        seats = ["--max-num-seqs", str(NUM_SEATS), "--shutdown-timeout", str(DRAIN_S)]
        with (
            ServerProcess(
                [
                    "gateway",
                    str(model),
                    *handshake,
                    *addresses,
                    "--core-load-timeout",
                    "1500",
                    "--max-core-restarts",
                    "0",
                ]
            ) as gateway,
            vllm_python.headless_core(vllm_interpreter, model, port, *seats) as core,
        ):
            yield Served(gateway, core, gateway.wait_until_ready(vllm_python.START_TIMEOUT_S), admin_address)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.address) as client:
        yield client


def test_what_the_core_says_of_itself_is_told(served: Served) -> None:
    """Its release, its sizes."""
    with grpc.insecure_channel(served.admin_address) as channel:
        info = ControlServiceStub(channel).GetServerInfo(GetServerInfoRequest(), timeout=PATIENCE_S)
    assert (info.engine_version, info.dtype) == (vllm_python.VERSION, "float32")
    assert info.max_model_len == vllm_python.MAX_MODEL_LEN


@pytest.mark.parametrize("case", SMOLLM2_CASES, ids=lambda case: case["name"])
def test_every_case_gives_its_tokens_and_logprobs(client: Client, case: dict) -> None:
    """Text and chats, greedy."""
    prompt = {"chat": case["messages"]} if "messages" in case else {"prompt": case["prompt_text"]}
    generation = client.generate(**prompt, temperature=0, max_tokens=NUM_TOKENS, logprobs=1)
    check_tokens(case, generation.token_ids, [position.logprob for position in generation.logprobs])


def test_a_prompt_is_scored_as_in_the_reference(client: Client) -> None:
    """Prompt log-probabilities, in aux frames."""
    generation = client.generate(STORY["prompt_text"], temperature=0, max_tokens=1, prompt_logprobs=1)
    _first, *others = generation.prompt_logprobs
    check_prompt(STORY, [None, *(position.logprob for position in others)])


def test_a_stop_string_and_a_cancelled_call_leave_their_seats_to_the_next(served: Served, client: Client) -> None:
    """ABORT reaches the core."""
    for _ in range(NUM_SEATS):
        generation = client.generate(CAPITAL["prompt_text"], stop=["answer"], **ENDLESS)
        assert (generation.text, generation.finish_reason) == (" Paris.\n\nThe ", FinishReason.STOP)
        stream = client.stream(STORY["prompt_text"], **ENDLESS)
        next(stream), next(stream)
        stream.cancel()
    assert client.generate(chat=ITALY["messages"], temperature=0, max_tokens=30).text == ITALY["greedy_text"]
    assert served.wait_until_idle().kv_cache_usage == 0


def test_n_samples_with_a_seed_are_the_same_again(client: Client) -> None:
    """n requests for the core, each with a seed of its own."""
    first, again = (
        client.generate(STORY["prompt_text"], n=2, seed=7, temperature=1, max_tokens=NUM_TOKENS) for _ in range(2)
    )
    assert [output.text for output in first.outputs] == [output.text for output in again.outputs]
    assert first.outputs[0].text != first.outputs[1].text


def test_a_core_that_drains_finishes_what_runs_and_then_the_gateway_ends(served: Served, client: Client) -> None:
    """The open stream comes to its natural end; what is asked for meanwhile is refused; the core's exit code is 0.

    A gateway without a core ends too, and says with its exit code that nobody asked it to.
    """
    stream = client.stream(STORY["prompt_text"], temperature=0, max_tokens=64)
    next(stream)
    served.core.send_signal(signal.SIGTERM)
    assert 1 + sum(1 for _ in stream) > NUM_TOKENS
    assert served.core.wait() == 0
    assert served.gateway.wait(PATIENCE_S) == 1
