"""The server of vllm.grpc.engine that others wrote, in Rust, and ours: to the same requests they say the same.

Each has a core of ours, with the same model. What they may differ in is how many tokens come in one chunk.
"""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from tests.e2e.server import serving
from tests.interop.program import Program, free_port
from tests.interop.reference import CAPITAL, ITALY, LOGPROB_TOLERANCE
from tests.interop.vllm_rs import core
from tests.model_files import SMOLLM2_FOLDER

pytestmark = pytest.mark.interop

_SERVE = """
import sys, time
from smg.servicer import VllmGrpcServer
server = VllmGrpcServer(
    sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], engine_count=1, tokenizer_dir=sys.argv[4],
    served_model_name="smollm2", tokenizer_path=sys.argv[4], max_context_length=8192, vocab_size=49152,
    model_type="llama", architectures=["LlamaForCausalLM"], eos_token_ids=[2], pad_token_id=2, bos_token_id=1,
    model_dtype="torch.float32", block_size=16, max_num_seqs=64,
)
while not server.engine_ready:
    time.sleep(0.05)
print("engine ready", flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def theirs(smg_program: Path) -> Iterator[VllmEngineStub]:
    """The Rust server with our core, which it reads as vLLM 0.33 has its outputs."""
    address, port = f"127.0.0.1:{free_port()}", free_port()
    dial = ["--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(port)]
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        arguments = [address, f"ipc://{folder}/z", f"tcp://127.0.0.1:{port}", str(SMOLLM2_FOLDER)]
        with (
            Program([smg_program.parent / "python", "-c", _SERVE, *arguments]) as program,
            core("--kv-cache-memory", "256MiB", *dial),
            grpc.insecure_channel(address) as channel,
        ):
            program.wait_for_log("engine ready")
            yield VllmEngineStub(channel)


@pytest.fixture(scope="module")
def ours() -> Iterator[VllmEngineStub]:
    with (
        serving("--kv-cache-memory", "256MiB", "--served-model-name", "smollm2", model=str(SMOLLM2_FOLDER)) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield VllmEngineStub(channel)


CASES = {
    "greedy": {"max_tokens": 8},
    "the end of the sequence": {"prompt": ITALY["prompt_token_ids"], "max_tokens": 40},
    "log-probabilities": {"max_tokens": 5, "logprobs": 0},
    "the two best": {"max_tokens": 5, "logprobs": 2},
    "of the prompt": {"max_tokens": 2, "prompt_logprobs": 1},
    "a stop token": {"max_tokens": 20, "stop_token_ids": [198]},
    "a stop string": {"max_tokens": 20, "stop": ["\n\nThe"]},
    "two sequences": {"max_tokens": 4, "n": 2, "temperature": 1e-4},
    "a form": {"max_tokens": 12, "regex": "[a-c]{4}"},
    "a schema": {"max_tokens": 30, "json_schema": '{"type": "integer"}'},
    "a bias": {"max_tokens": 4, "logit_bias": {42: 100.0}},
    "at least": {"max_tokens": 10, "min_tokens": 5, "logit_bias": {2: 100.0}},
    "penalties": {"max_tokens": 8, "repetition_penalty": 1.3, "frequency_penalty": 0.5, "presence_penalty": 0.5},
}


ONE_TOKEN = {"max_tokens": 20, "stop": ["."]}


def answered(
    engine: VllmEngineStub, stream: bool, prompt: Iterable[int] = CAPITAL["prompt_token_ids"], **params: Any
) -> list[pb.GenerateResponse]:
    given = {"temperature": 0, "top_p": 1, "repetition_penalty": 1, "skip_special_tokens": True, "n": 1, **params}
    request = pb.GenerateRequest(
        request_id="r",
        tokenized=pb.TokenizedInput(input_ids=prompt),
        stream=stream,
        sampling_params=pb.SamplingParams(**given),
    )
    return [*engine.Generate(request, timeout=120)]


def essence(responses: list[pb.GenerateResponse]) -> dict[int, dict[str, Any]]:
    """Of each sequence, what a router makes of its messages."""
    sequences: dict[int, dict[str, Any]] = {}
    for response in responses:
        if response.HasField("chunk"):
            chunk = response.chunk
            of_chunks = sequences.setdefault(chunk.index, {"streamed": []})
            of_chunks["streamed"] += chunk.token_ids
        else:
            complete = response.complete
            sequences.setdefault(complete.index, {"streamed": []}).update(
                output_ids=[*complete.output_ids],
                finish_reason=complete.finish_reason,
                prompt_tokens=complete.prompt_tokens,
                completion_tokens=complete.completion_tokens,
                cached_tokens=complete.cached_tokens,
                matched=complete.matched_stop_str or complete.matched_token_id,
            )
    return sequences


def scores(responses: list[pb.GenerateResponse]) -> dict[str, list[float]]:
    """All log-probabilities in the order that they came, with the tokens that they are of.

    Of a stream those of the chunks: the Rust server says all of them once more at the end.
    """
    has_chunks = any(response.HasField("chunk") for response in responses)
    found: dict[str, list[float]] = {"ids": [], "values": [], "top ids": [], "top values": [], "prompt": []}
    for response in responses:
        message = response.chunk if has_chunks else response.complete
        found["ids"] += message.output_logprobs.token_ids
        found["values"] += message.output_logprobs.token_logprobs
        for row in message.output_logprobs.top_logprobs:
            found["top ids"] += row.token_ids
            found["top values"] += row.values
        found["prompt"] += [value.value for value in message.input_logprobs.token_logprobs]
    return found


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_both_say_the_same(ours: VllmEngineStub, theirs: VllmEngineStub, case: str, stream: bool) -> None:
    """Tokens, counts, ends and scores of every sequence."""
    mine, other = (answered(engine, stream, **CASES[case]) for engine in (ours, theirs))
    assert essence(mine) == essence(other)
    mine_scored, other_scored = scores(mine), scores(other)
    for name, values in mine_scored.items():
        assert values == pytest.approx(other_scored[name], abs=LOGPROB_TOLERANCE), name


def test_a_stop_string_of_one_token(ours: VllmEngineStub, theirs: VllmEngineStub) -> None:
    """Theirs makes a stop token of it, and tells that; ours tells what was asked for, as vLLM does."""
    (mine,), (other,) = (answered(engine, False, **ONE_TOKEN) for engine in (ours, theirs))
    assert [*mine.complete.output_ids] == [*other.complete.output_ids]
    assert mine.complete.matched_stop_str == "."
    assert other.complete.matched_token_id == mine.complete.output_ids[-1]
