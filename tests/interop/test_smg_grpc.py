"""The Shepherd Model Gateway as a client of our server: it has never seen the model, and is told the address alone."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
import pytest
from smg_grpc_proto.generated.common_pb2 import GetTokenizerRequest
from smg_grpc_proto.generated.vllm_engine_pb2_grpc import VllmEngineStub

from tests.e2e.server import Server, serving
from tests.interop.openai_api import ApiError, OpenAIApi
from tests.interop.program import Program
from tests.interop.reference import CAPITAL, CHAT_CASES, ITALY, LOGPROB_TOLERANCE, NUM_TOKENS, STORY, TEXT_CASES
from tests.interop.smg import before_server
from tests.model_files import SMOLLM2_FOLDER
from tests.service.metrics.scrape import scrape

pytestmark = pytest.mark.interop

MODEL = "smollm2"
COLOUR = {
    "type": "object",
    "properties": {"colour": {"type": "string", "maxLength": 12}},
    "required": ["colour"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Served:
    """The router with our server."""

    program: Program
    server: Server
    api: OpenAIApi


@pytest.fixture(scope="module")
def front_end(smg_program: Path) -> Iterator[Served]:
    """The model's folder is out of its sight when the router starts: it has to ask for the tokenizer."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        model = _linked(SMOLLM2_FOLDER, Path(folder) / MODEL)
        with serving("--kv-cache-memory", "256MiB", model=str(model)) as server:
            with grpc.insecure_channel(server.address) as channel:
                assert [*VllmEngineStub(channel).GetTokenizer(GetTokenizerRequest(), timeout=60)]
            hidden = model.rename(model.with_suffix(".hidden"))
            with before_server(smg_program, server.address, MODEL) as (program, api):
                hidden.rename(model)
                yield Served(program, server, api)


def _linked(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).symlink_to(path)
    return target


def test_the_tokenizer_came_from_us(front_end: Served) -> None:
    """Over GetTokenizer, whose zip it has checked."""
    front_end.program.wait_for_log(f"Fetching tokenizer from worker: grpc://{front_end.server.address}")


def test_it_serves_our_model_by_its_name(front_end: Served) -> None:
    """As GetModelInfo has it."""
    assert [model["id"] for model in json.loads(front_end.api.get("/v1/models"))["data"]] == [MODEL]


def test_every_text_case_gives_its_text(front_end: Served) -> None:
    """Over /v1/completions."""
    for case in TEXT_CASES:
        answer = front_end.api.complete(case["prompt_text"], temperature=0, max_tokens=NUM_TOKENS)
        assert answer["usage"]["completion_tokens"] == NUM_TOKENS
        assert case["greedy_text"].startswith(answer["choices"][0]["text"].rstrip("\N{REPLACEMENT CHARACTER}"))


def test_every_chat_case_gives_its_logprobs(front_end: Served) -> None:
    """Over /v1/chat/completions."""
    for case in CHAT_CASES:
        options = {"temperature": 0, "max_tokens": NUM_TOKENS, "logprobs": True, "top_logprobs": 2}
        (choice,) = front_end.api.chat(case["messages"], **options)["choices"]
        assert case["greedy_text"].startswith(choice["message"]["content"])
        tokens = choice["logprobs"]["content"]
        for rank in (0, 1):
            expected = [best[rank][1] for best in case["top5"]]
            logprobs = [token["top_logprobs"][rank]["logprob"] for token in tokens]
            assert logprobs == pytest.approx(expected, abs=LOGPROB_TOLERANCE), case["name"]
        assert [token["logprob"] for token in tokens] == [token["top_logprobs"][0]["logprob"] for token in tokens]


def test_a_streamed_chat_is_the_reference_text_in_pieces(front_end: Served) -> None:
    """Up to the end of the sequence, with the usage that we count."""
    with front_end.api.stream_chat(ITALY["messages"], temperature=0, max_tokens=30) as stream:
        events = [*stream]
    choices = [choice for event in events for choice in event["choices"]]
    pieces = [piece for choice in choices if (piece := choice["delta"].get("content"))]
    assert "".join(pieces) == ITALY["greedy_text"]
    assert len(pieces) > 3
    assert choices[-1]["finish_reason"] == "stop"
    assert events[-1]["usage"]["prompt_tokens"] == len(ITALY["prompt_token_ids"])


def test_n_choices_differ(front_end: Served) -> None:
    """Streamed and not, each under its index."""
    options = {"temperature": 1.5, "seed": 7, "max_tokens": 8, "n": 3}
    choices = front_end.api.chat(ITALY["messages"], **options)["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in choices}) > 1
    pieces: dict[int, str] = {0: "", 1: "", 2: ""}
    with front_end.api.stream_complete(CAPITAL["prompt_text"], **options) as stream:
        for event in stream:
            for choice in event["choices"]:
                pieces[choice["index"]] += choice["text"]
    assert all(pieces.values())
    assert len(set(pieces.values())) > 1


def test_a_schema_shapes_the_answer(front_end: Served) -> None:
    """One that is wrong is refused as the client's fault, with the name of our field."""
    messages = [{"role": "user", "content": "Name a colour"}]

    def asked(schema: object) -> str:
        form = {"type": "json_schema", "json_schema": {"name": "colour", "schema": schema}}
        (choice,) = front_end.api.chat(messages, temperature=0, max_tokens=60, response_format=form)["choices"]
        text: str = choice["message"]["content"]
        return text

    answer = json.loads(asked(COLOUR))
    assert answer.keys() == {"colour"}
    with pytest.raises(ApiError, match=r"400.*sampling_params\.json_schema"):
        asked({"type": "object", "properties": {"colour": {"items": 5}}})


def test_a_stop_string_ends_the_text_before_it(front_end: Served) -> None:
    """We find it and the router does, and both say so."""
    options = {"temperature": 0, "max_tokens": 30, "stop": ["answer"]}
    (choice,) = front_end.api.complete(CAPITAL["prompt_text"], **options)["choices"]
    assert (choice["text"], choice["finish_reason"]) == (" Paris.\n\nThe ", "stop")
    assert choice["matched_stop"] == "answer"


def test_a_client_that_goes_away_frees_the_core(front_end: Served) -> None:
    """The router sends Abort and reads on: the stream ends by it, and nothing runs any more."""
    options = {"max_tokens": 8000, "ignore_eos": True, "temperature": 0}
    with front_end.api.stream_complete(STORY["prompt_text"], **options) as stream:
        next(stream), next(stream)
        assert front_end.server.load().num_requests == 1
    load = front_end.server.wait_until_idle()
    assert (load.num_running, load.kv_cache_usage) == (0, 0)
    answer = scrape(front_end.server.metrics_address)
    assert answer.engine("request_success_total", MODEL, finished_reason="abort") == 1
    assert answer.value("sluicegate:rpcs_total", method="/vllm.grpc.engine.VllmEngine/Abort", code="OK") == 1
    assert answer.value("sluicegate:streams_open", method="/vllm.grpc.engine.VllmEngine/Generate") == 0


def test_a_core_that_dies_is_a_pause(front_end: Served) -> None:
    """Killed amid an answer: the same text comes, and its client has done nothing."""
    options = {"max_tokens": 40, "temperature": 0}
    expected = front_end.api.complete(STORY["prompt_text"], **options)["choices"][0]["text"]
    pieces = []
    with front_end.api.stream_complete(STORY["prompt_text"], **options) as stream:
        for event in stream:
            pieces += [choice["text"] for choice in event["choices"]]
            if len(pieces) == 5:
                (child,) = psutil.Process(front_end.server.process.pid).children()
                child.kill()
    assert "".join(pieces) == expected
    assert front_end.server.process.log.count("core started") == 2


def test_a_flush_empties_the_prefix_cache(front_end: Served) -> None:
    """The same prompt is cached before it, and not after it."""

    def num_cached_tokens() -> int:
        usage = front_end.api.chat(ITALY["messages"], temperature=0, max_tokens=1)["usage"]
        number: int = usage["prompt_tokens_details"]["cached_tokens"]
        return number

    num_cached_tokens()
    assert num_cached_tokens() > 0
    assert json.loads(front_end.api.post("/flush_cache"))["status"] == "success"
    assert num_cached_tokens() == 0


def test_what_it_knows_of_our_load(front_end: Served) -> None:
    """GetLoads reaches it."""
    (load,) = json.loads(front_end.api.get("/get_loads"))["loads"]
    assert load["max_running_requests"] == 64
    assert load["max_total_num_tokens"] > 1000


def test_what_cannot_be_embedded_is_refused(front_end: Served) -> None:
    """Once, as the client's fault."""
    with pytest.raises(ApiError, match=r"400.*cannot embed"):
        front_end.api.post("/v1/embeddings", model=MODEL, input="hello")


def test_no_call_of_it_was_an_error(front_end: Served) -> None:
    """But those that the tests made wrong, and KV events; its probes for other contracts are not counted."""
    answer = scrape(front_end.server.metrics_address)
    failed = {
        (sample.labels["method"].rpartition("/")[2], sample.labels["code"])
        for family in answer.families
        if family.name == "sluicegate:rpcs"
        for sample in family.samples
        if sample.labels["code"] != "OK" and "Control" not in sample.labels["method"]
    }
    assert failed - {("SubscribeKvEvents", "UNIMPLEMENTED")} == {
        ("Generate", "INVALID_ARGUMENT"),
        ("Embed", "INVALID_ARGUMENT"),
    }
