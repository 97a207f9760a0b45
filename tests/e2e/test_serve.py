import asyncio
import threading

import pytest

from sluicegate_client import (
    AsyncClient,
    Client,
    DeadlineExceededError,
    Delta,
    FinishReason,
    InvalidRequestError,
    NotFoundError,
    Usage,
)
from sluicegate_client.requests import GenerateOptions
from tests.e2e.server import Server

PROMPT = "The capital of France is"
CHAT = [{"role": "user", "content": "What is the capital of Italy?"}]
GREEDY: GenerateOptions = {"temperature": 0, "max_tokens": 12}


def _joined(deltas: list[Delta]) -> tuple[str, list[int]]:
    return "".join(delta.text for delta in deltas), [token for delta in deltas for token in delta.token_ids]


def test_a_plain_prompt_is_continued_as_a_stream(client: Client) -> None:
    """One started, deltas, one finished with the usage."""
    stream = client.stream(PROMPT, **GREEDY)
    text, token_ids = _joined(list(stream))
    assert text.startswith(" Paris")
    assert stream.started is not None
    assert stream.started.num_prompt_tokens == 5
    assert stream.usage == Usage(5, stream.started.num_cached_tokens, 12)
    assert len(token_ids) == 12
    assert stream.finished[0].finish_reason is FinishReason.LENGTH


def test_a_chat_is_answered_as_a_stream(client: Client) -> None:
    """The chat template is applied, and the end-of-sequence token ends the answer."""
    stream = client.stream(chat=CHAT, temperature=0, max_tokens=40)
    text, _ = _joined(list(stream))
    assert text
    assert "<|im_end|>" not in text
    assert stream.usage is not None
    assert stream.usage.num_prompt_tokens == 37
    assert stream.finished[0].finish_reason is FinishReason.STOP
    assert stream.finished[0].stop is None


@pytest.mark.parametrize("options", [{"prompt": PROMPT}, {"chat": CHAT}, {"prompt": "Emoji: 🦊🇫🇷"}])
def test_the_joined_deltas_are_the_unary_answer(client: Client, options: dict) -> None:
    """Text and tokens, byte for byte."""
    generation = client.generate(**options, **GREEDY)
    stream = client.stream(**options, **GREEDY)
    assert _joined(list(stream)) == (generation.text, generation.token_ids)
    assert stream.finished[0].finish_reason == generation.finish_reason


def test_tokens_may_be_sent_instead_of_text(client: Client) -> None:
    """The same tokens, the same answer."""
    token_ids = client.tokenize(PROMPT)
    assert client.generate(token_ids=token_ids, **GREEDY).text == client.generate(PROMPT, **GREEDY).text
    assert client.detokenize(token_ids) == PROMPT


def test_a_stop_string_ends_the_answer_and_is_not_in_it(client: Client) -> None:
    """Also where it spans tokens; finished names it."""
    whole = client.generate(PROMPT, temperature=0, max_tokens=24).text
    stop = whole[5:12]
    stream = client.stream(PROMPT, temperature=0, max_tokens=24, stop=stop)
    assert _joined(list(stream))[0] == whole[:5]
    assert (stream.finished[0].finish_reason, stream.finished[0].stop) == (FinishReason.STOP, stop)


def test_n_sequences_are_streamed_side_by_side(client: Client) -> None:
    """Each has its own finished; a seed makes them repeatable."""
    options: GenerateOptions = {"n": 3, "temperature": 0.9, "seed": 7, "max_tokens": 8}
    texts = ["", "", ""]
    stream = client.stream(PROMPT, **options)
    for delta in stream:
        texts[delta.index] += delta.text
    assert sorted(stream.finished) == [0, 1, 2]
    assert [output.text for output in client.generate(PROMPT, **options).outputs] == texts
    assert len(set(texts)) == 3


def test_a_seeded_request_gives_the_same_tokens_alone_and_beside_others(client: Client, server: Server) -> None:
    """Random draws do not depend on the neighbours."""
    options: GenerateOptions = {"temperature": 0.9, "seed": 7, "max_tokens": 16}
    alone = client.generate(PROMPT, **options).token_ids

    async def together() -> list[int]:
        async with AsyncClient(server.address) as client:
            others = [client.generate(f"{index} and", temperature=1, max_tokens=16) for index in range(15)]
            return (await asyncio.gather(client.generate(PROMPT, **options), *others))[0].token_ids

    assert asyncio.run(together()) == alone


def test_logprobs_come_for_every_token(client: Client) -> None:
    """The greedy token is the most likely one."""
    generation = client.generate(PROMPT, **GREEDY, logprobs=2)
    assert [position.token_id for position in generation.logprobs] == generation.token_ids
    assert all(position.rank == 1 and len(position.top) >= 2 for position in generation.logprobs)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("sampling_params.temperature", {"temperature": -1}),
        ("sampling_params.temperature", {"temperature": float("nan")}),
        ("sampling_params.top_p", {"top_p": 0}),
        ("sampling_params.top_p", {"top_p": float("inf")}),
        ("sampling_params.top_k", {"top_k": -2}),
        ("sampling_params.min_p", {"min_p": 1.5}),
        ("sampling_params.n", {"n": 0}),
        ("sampling_params.n", {"n": 1_000_000}),
        ("sampling_params.max_tokens", {"max_tokens": 0}),
        ("sampling_params.min_tokens", {"min_tokens": 9, "max_tokens": 8}),
        ("sampling_params.presence_penalty", {"presence_penalty": 3}),
        ("sampling_params.frequency_penalty", {"frequency_penalty": float("nan")}),
        ("sampling_params.repetition_penalty", {"repetition_penalty": 0}),
        ("sampling_params.stop", {"stop": ""}),
        ("sampling_params.stop_token_ids", {"stop_token_ids": [49152]}),
        ("sampling_params.logit_bias", {"logit_bias": {49152: 1.0}}),
        ("sampling_params.allowed_token_ids", {"allowed_token_ids": [49152]}),
        ("sampling_params.bad_words", {"bad_words": [""]}),
        ("sampling_params.logprobs", {"logprobs": 21}),
        ("sampling_params.logprobs", {"logprobs": -1}),
        ("sampling_params.prompt_logprobs", {"prompt_logprobs": -1}),
        ("sampling_params.truncate_prompt_tokens", {"truncate_prompt_tokens": -2}),
        ("data_parallel_rank", {"data_parallel_rank": 1}),
        ("request_id", {"request_id": "x" * 257}),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(client: Client, field: str, options: GenerateOptions) -> None:
    """INVALID_ARGUMENT, a violation that names the field, and the server goes on."""
    with pytest.raises(InvalidRequestError) as raised:
        client.generate(PROMPT, **{"max_tokens": 4, **options})
    assert field in [violation.field.split("[")[0] for violation in raised.value.violations]
    assert raised.value.reason


def test_a_request_that_rules_out_every_token_is_refused_with_the_cause(client: Client) -> None:
    """Which shows in the core alone, when it comes to choose; no token is sent that the client did not allow."""
    with pytest.raises(InvalidRequestError, match="no token is possible: allowed_token_ids, bad words, min_tokens"):
        client.generate(PROMPT, allowed_token_ids=[2], min_tokens=2, max_tokens=4)
    assert client.generate(PROMPT, **GREEDY).text


@pytest.mark.parametrize(
    ("field", "prompt"),
    [
        ("text", {"prompt": ""}),
        ("token_ids", {"token_ids": []}),
        ("token_ids", {"token_ids": [49152]}),
        ("token_ids", {"token_ids": [1] * 8193}),
        ("chat", {"chat": []}),
        ("chat", {"chat": [{"role": "", "content": "x"}]}),
    ],
)
def test_a_wrong_prompt_is_refused_by_its_name(client: Client, field: str, prompt: GenerateOptions) -> None:
    """Empty, outside the vocabulary, longer than the context, without a role."""
    with pytest.raises(InvalidRequestError) as raised:
        client.generate(**prompt, max_tokens=4)
    assert raised.value.violations[0].field.startswith(field)


def test_another_model_is_not_found(client: Client) -> None:
    """Nobody gets an answer of a model they did not ask for."""
    with pytest.raises(NotFoundError, match="nonesuch"):
        client.generate(PROMPT, model="nonesuch", max_tokens=1)


def test_many_clients_at_once_get_the_answers_they_would_get_alone(client: Client, server: Server) -> None:
    """Continuous batching changes nobody's greedy text."""
    prompts = [PROMPT, "One, two, three,", "Once upon a time", "def add(a, b):"]
    alone = [client.generate(prompt, **GREEDY).text for prompt in prompts]
    together: dict[str, str] = {}

    def ask(prompt: str) -> None:
        with Client(server.address) as own:
            together[prompt] = _joined(list(own.stream(prompt, **GREEDY)))[0]

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[prompt] for prompt in prompts] == alone


def test_leaving_a_stream_ends_the_request_in_the_engine(client: Client, server: Server) -> None:
    """Cancelled, and past its deadline: nothing runs, nothing waits, every block is free."""
    stream = client.stream(PROMPT, max_tokens=4000, ignore_eos=True)
    next(stream)
    stream.cancel()
    with pytest.raises(DeadlineExceededError):
        client.generate(PROMPT, max_tokens=4000, ignore_eos=True, timeout=1)
    assert server.wait_until_idle().kv_cache_usage == 0
