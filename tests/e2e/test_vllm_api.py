"""What broke other servers of this kind, sent through vllm.grpc.engine.VllmEngine to a real server with a real model.

The numbers are those of the failures that were reported of others; each must be impossible here.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from smg_grpc_proto.generated import vllm_engine_pb2 as pb
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from tests.e2e.server import Server, serving
from tests.model_files import SMOLLM2_CASES

VOCAB_SIZE = 49152
EOS_TOKEN_ID = 2
MAX_MODEL_LEN = 64
CAPITAL = next(case for case in SMOLLM2_CASES if case["name"] == "capital")
PROMPT = CAPITAL["prompt_token_ids"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A short context: its end is soon reached."""
    with serving("--max-model-len", str(MAX_MODEL_LEN), "--kv-cache-memory", "64MiB") as server:
        yield server


@pytest.fixture(scope="module")
def engine(server: Server) -> Iterator[VllmEngineStub]:
    with grpc.insecure_channel(server.address) as channel:
        yield VllmEngineStub(channel)


@pytest.fixture(autouse=True)
def neighbour(engine: VllmEngineStub, server: Server) -> Iterator[None]:
    """Runs beside every test, and must say what it always says; afterwards nothing is left."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(generate, engine, request_id="neighbour", max_tokens=3)
        yield
        assert [*running.result()[0].output_ids] == CAPITAL["greedy_token_ids"][:3]
    assert server.wait_until_idle().kv_cache_usage == 0
    assert engine.HealthCheck(pb.HealthCheckRequest(), timeout=30).healthy


def asks(request_id: str = "r", token_ids: Any = PROMPT, stream: bool = False, **params: Any) -> pb.GenerateRequest:
    """Greedy unless told otherwise."""
    sampling_params = pb.SamplingParams(**{"temperature": 0, "max_tokens": 4, **params})
    tokenized = pb.TokenizedInput(input_ids=token_ids)
    return pb.GenerateRequest(
        request_id=request_id, tokenized=tokenized, stream=stream, sampling_params=sampling_params
    )


def generate(engine: VllmEngineStub, **fields: Any) -> list[pb.GenerateComplete]:
    """The completes."""
    return [response.complete for response in engine.Generate(asks(**fields), timeout=120)]


def refusal(engine: VllmEngineStub, **fields: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as raised:
        generate(engine, **fields)
    return raised.value.code(), raised.value.details()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        pytest.param({"token_ids": [VOCAB_SIZE]}, "tokenized.input_ids", id="24-vocab"),
        pytest.param({"token_ids": [2**31 - 1]}, "tokenized.input_ids", id="24-int32"),
        pytest.param({"token_ids": [2**32 - 1]}, "tokenized.input_ids", id="24-minus-one"),
        pytest.param(
            {"stop_token_ids": [VOCAB_SIZE + 5], "min_tokens": 3}, "sampling_params.stop_token_ids", id="25-stop-token"
        ),
        pytest.param({"logit_bias": {VOCAB_SIZE: 5}}, "sampling_params.logit_bias", id="26-vocab"),
        pytest.param({"logit_bias": {-1: 5}}, "sampling_params.logit_bias", id="26-negative"),
        pytest.param({"n": 1_000_000, "temperature": 1}, "sampling_params.n", id="28-n"),
        pytest.param({"token_ids": []}, "tokenized.input_ids", id="29-empty"),
        pytest.param({"token_ids": [1] * MAX_MODEL_LEN}, "tokenized.input_ids", id="30-context"),
        pytest.param({"token_ids": [1] * (MAX_MODEL_LEN + 1)}, "tokenized.input_ids", id="30-beyond"),
        pytest.param({"temperature": float("nan")}, "sampling_params.temperature", id="33-nan"),
        pytest.param({"min_p": float("-inf")}, "sampling_params.min_p", id="33-inf"),
        pytest.param({"json_object": False}, "sampling_params.json_object", id="36-object"),
        pytest.param({"json_schema": ""}, "sampling_params.json_schema", id="36-no-schema"),
        pytest.param({"json_schema": "{"}, "sampling_params.json_schema", id="36-no-json"),
        pytest.param(
            {"json_schema": '{"type": "object", "properties": {"a": {"items": 5}}}'},
            "sampling_params.json_schema",
            id="36-bad-schema",
        ),
        pytest.param({"regex": "("}, "sampling_params.regex", id="36-bad-regex"),
        pytest.param({"grammar": "root ::= missing"}, "sampling_params.grammar", id="36-bad-grammar"),
    ],
)
def test_what_is_wrong_is_refused_by_its_name(engine: VllmEngineStub, fields: dict[str, Any], named: str) -> None:
    """INVALID_ARGUMENT with the field; the neighbour in the batch notices nothing."""
    code, message = refusal(engine, **fields)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert message.startswith(named)


def test_17_two_live_requests_with_one_id(engine: VllmEngineStub) -> None:
    """The second is ALREADY_EXISTS; an abort by the id ends the first; then the id is free."""
    first = engine.Generate(asks("same", stream=True, max_tokens=50, ignore_eos=True), timeout=120)
    next(first)
    assert refusal(engine, request_id="same", token_ids=[5, 6])[0] is grpc.StatusCode.ALREADY_EXISTS
    engine.Abort(pb.AbortRequest(request_ids=["same"]), timeout=30)
    assert [*first][-1].complete.finish_reason in ("abort", "length")
    assert generate(engine, request_id="same")[0].finish_reason == "length"


def test_18_a_client_that_leaves(engine: VllmEngineStub) -> None:
    """The neighbour's fixture finds that nothing runs any more, and that no KV block is held."""
    stream = engine.Generate(asks(stream=True, max_tokens=50, ignore_eos=True), timeout=120)
    next(stream)
    stream.cancel()


def test_21_an_abort_of_what_is_not_there(engine: VllmEngineStub) -> None:
    """Unknown, finished, twice, and while the last token is on its way: nothing happens."""
    expected = [*generate(engine, request_id="finished")[0].output_ids]
    for _ in range(2):
        engine.Abort(pb.AbortRequest(request_ids=["unknown", "finished"]), timeout=30)
    stream = engine.Generate(asks("last", stream=True), timeout=120)
    for response in stream:
        if response.chunk.completion_tokens == 3:
            engine.Abort(pb.AbortRequest(request_ids=["last"]), timeout=30)
    assert [*generate(engine, request_id="last")[0].output_ids] == expected


def test_24_the_last_token_of_the_vocabulary(engine: VllmEngineStub) -> None:
    assert generate(engine, token_ids=[VOCAB_SIZE - 1])[0].completion_tokens == 4


def test_30_a_prompt_that_leaves_one_token(engine: VllmEngineStub) -> None:
    """One token, and "length". One more is refused with both numbers."""
    (complete,) = generate(engine, token_ids=[1] * (MAX_MODEL_LEN - 1))
    assert (complete.completion_tokens, complete.finish_reason) == (1, "length")
    _, message = refusal(engine, token_ids=[1] * MAX_MODEL_LEN)
    assert f"{MAX_MODEL_LEN} tokens" in message
    assert f"max_model_len ({MAX_MODEL_LEN})" in message


@pytest.mark.parametrize("params", [{}, {"top_k": 0}, {"top_k": 2**32 - 1}, {"top_p": 0}, {"n": 0}], ids=str)
def test_35_an_explicit_zero_is_greedy(engine: VllmEngineStub, params: dict[str, Any]) -> None:
    """Whatever else is unset, or set to what means unset."""
    (complete,) = generate(engine, max_tokens=6, **params)
    assert [*complete.output_ids] == CAPITAL["greedy_token_ids"][:6]


def test_35_unset_is_the_default(engine: VllmEngineStub) -> None:
    """Of the contract, where nothing is recommended: temperature 1, for which the seed matters."""
    drawn = set()
    for seed in range(4):
        params = pb.SamplingParams(seed=seed, max_tokens=8)
        request = pb.GenerateRequest(
            request_id="r", tokenized=pb.TokenizedInput(input_ids=PROMPT), sampling_params=params
        )
        (response,) = engine.Generate(request, timeout=120)
        drawn.add(tuple(response.complete.output_ids))
    assert len(drawn) > 1


@pytest.mark.parametrize("min_tokens", [0, 1, 4])
def test_45_min_tokens_before_an_end_that_is_forced(engine: VllmEngineStub, min_tokens: int) -> None:
    """Exactly so many other tokens, then the end of the sequence."""
    (complete,) = generate(engine, min_tokens=min_tokens, max_tokens=20, logit_bias={EOS_TOKEN_ID: 100})
    *others, last = complete.output_ids
    assert (len(others), last, complete.finish_reason) == (min_tokens, EOS_TOKEN_ID, "stop")
    assert EOS_TOKEN_ID not in others
    assert complete.WhichOneof("matched_stop") is None


def test_what_the_server_says_of_itself(engine: VllmEngineStub) -> None:
    """The core is ours, has 64 seats, and begins with a form of the output at the first token."""
    info = engine.GetServerInfo(pb.GetServerInfoRequest(), timeout=30)
    assert (info.server_type, info.max_num_seqs, info.block_size, info.is_paused) == ("vllm-grpc", 64, 16, False)
    assert info.constrained_decoding_start == "first_token"
    assert info.last_receive_timestamp > 0
    model = engine.GetModelInfo(pb.GetModelInfoRequest(), timeout=30)
    assert (model.served_model_name, model.max_context_length) == ("smollm2-135m", MAX_MODEL_LEN)


@pytest.mark.parametrize("stream", [True, False])
def test_43_a_stop_string_over_several_tokens(engine: VllmEngineStub, stream: bool) -> None:
    """Found here; tokens go up to the one that completes it, streamed and not."""
    request = asks(stream=stream, max_tokens=20, stop=["\n\nThe"])
    completes = [r.complete for r in engine.Generate(request, timeout=120) if r.HasField("complete")]
    (complete,) = completes
    assert (complete.finish_reason, complete.matched_stop_str) == ("stop", "\n\nThe")
    assert [*complete.output_ids] == CAPITAL["greedy_token_ids"][: complete.completion_tokens]
    assert complete.completion_tokens < 20
