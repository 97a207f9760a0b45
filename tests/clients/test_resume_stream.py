"""Streams that are asked for again, and go on where they broke off."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate_client import (
    AlreadyExistsError,
    AsyncClient,
    Client,
    Delta,
    OverloadedError,
    Retry,
    Stream,
    TokenLogprobs,
    UnavailableError,
)
from sluicegate_client.delivered import Delivered, DiffersError
from tests.clients.fake_server import FakeServer


def _texts(stream: Stream) -> list[str]:
    texts: dict[int, str] = {}
    for delta in stream:
        texts[delta.index] = texts.get(delta.index, "") + delta.text
    return [text for _, text in sorted(texts.items())]


@pytest.fixture
def client(server: FakeServer):
    with Client(server.address) as client:
        yield client


@pytest.mark.parametrize("num_breaks", [1, 3])
def test_a_stream_goes_on_where_it_broke_off(client: Client, server: FakeServer, num_breaks: int) -> None:
    """Each delta comes once, however often it breaks; the first Started stays; the figures are those of one answer."""
    server.service.num_breaks = num_breaks
    stream = client.stream("one two break four break six", resume=True)
    assert [delta.text for delta in stream] == ["one ", "two ", "break ", "four ", "break ", "six "]
    assert stream.usage is not None
    assert stream.usage.num_output_tokens == 6
    assert [*stream.finished] == [0]
    assert len(server.service.requests) == num_breaks + 1


def test_every_sequence_goes_on(client: Client, server: FakeServer) -> None:
    """Those that had ended, the one that broke, and those that had not begun."""
    server.service.num_breaks = 2
    stream = client.stream("one break three", n=3, resume=True)
    assert _texts(stream) == ["one break three "] * 3
    assert sorted(stream.finished) == [0, 1, 2]


async def test_an_async_stream_goes_on(server: FakeServer) -> None:
    """The same for asyncio."""
    async with AsyncClient(server.address) as client:
        stream = client.stream("one two break four", resume=True)
        assert [delta.text async for delta in stream] == ["one ", "two ", "break ", "four "]
    assert len(server.service.requests) == 2


def test_a_stream_that_does_not_resume_raises(client: Client, server: FakeServer) -> None:
    """Once a message has come, no call is made again unless that was asked for."""
    stream = client.stream("one break three")
    assert next(stream).text == "one "
    with pytest.raises(UnavailableError, match=r"^the core is gone$"):
        next(stream)
    assert len(server.service.requests) == 1


def test_an_answer_that_differs_is_not_pieced_together(client: Client, server: FakeServer) -> None:
    """What was delivered stays, and the error is that of the break, with where the answers part."""
    stream = client.stream("one vary break", resume=True)
    assert [next(stream).text for _ in range(2)] == ["one ", "vary1 "]
    with pytest.raises(UnavailableError, match=r"^the core is gone; .* differs .*: sequence 0 at character 8$") as gone:
        next(stream)
    assert gone.value.reason == "CORE_LOST"
    assert len(server.service.requests) == 2


def test_a_server_that_is_busy_when_a_stream_comes_back(client: Client, server: FakeServer) -> None:
    """It is waited for, as for every call."""
    server.service.num_refusals = 0
    stream = client.stream("one break busy", resume=True)
    assert next(stream).text == "one "
    server.service.num_refusals = 3
    assert [delta.text for delta in stream] == ["break ", "busy "]
    assert len(server.service.requests) == 4


def test_a_server_that_still_has_the_request(client: Client, server: FakeServer) -> None:
    """It is waited for until it has noticed that the reader is gone; a caller that takes the id of another is told."""
    stream = client.stream("one break three", resume=True, request_id="mine")
    assert next(stream).text == "one "
    server.service.num_live = 2
    assert [delta.text for delta in stream] == ["break ", "three "]
    assert len(server.service.requests) == 4
    server.service.num_live = 1
    with pytest.raises(AlreadyExistsError):
        list(client.stream("one", resume=True, request_id="mine"))


def test_attempts_are_counted_from_the_last_new_delta(server: FakeServer) -> None:
    """A long answer may break often; one that gets no further does not go on for ever."""
    server.service.num_breaks = 6
    with Client(server.address, retry=Retry(max_attempts=2)) as client:
        words = " ".join(["break"] * 3)
        with pytest.raises(UnavailableError):
            list(client.stream(f"one {words}", resume=True))
    assert len(server.service.requests) == 2


def test_what_draws_gets_a_seed(client: Client, server: FakeServer) -> None:
    """The same in each of its calls; one of the caller's own stays, and greedy needs none."""
    list(client.stream("break", resume=True))
    list(client.stream("two", resume=True, seed=7))
    list(client.stream("three", resume=True, temperature=0))
    list(client.stream("four"))
    again, first, own, greedy, plain = (
        request.sampling_params for request in sorted(server.service.requests, key=lambda request: request.text == "x")
    )
    assert again.seed == first.seed > 0
    assert own.seed == 7
    assert not greedy.HasField("seed")
    assert not plain.HasField("seed")


TEXT = "Grüße, 世界 🙂, and goodbye"


def _cut(boundaries: set[int], end: int) -> list[Delta]:
    """An answer of one token a character, cut at ``boundaries``, of which the first ``end`` characters come."""
    edges = sorted({0, *(each for each in boundaries if each < end), end})
    return [
        Delta(0, TEXT[a:b], [*range(a, b)], [TokenLogprobs(token, 0.0, 1, {}) for token in range(a, b)])
        for a, b in pairwise(edges)
    ]


@given(st.lists(st.tuples(st.sets(st.integers(1, len(TEXT))), st.integers(0, len(TEXT))), max_size=4))
def test_however_the_answers_are_cut(attempts: list[tuple[set[int], int]]) -> None:
    """Whatever broke off where, and wherever the deltas of each answer end, all comes once and in order."""
    delivered, deltas = Delivered(), []
    for boundaries, end in [*attempts, ({4, 9}, len(TEXT))]:
        delivered.repeat()
        deltas += [new for delta in _cut(boundaries, end) if (new := delivered.new_part(delta)) is not None]
    delivered.check_end(0)
    assert "".join(delta.text for delta in deltas) == TEXT
    assert [token for delta in deltas for token in delta.token_ids] == [*range(len(TEXT))]
    assert [each.token_id for delta in deltas for each in delta.logprobs] == [*range(len(TEXT))]


@pytest.mark.parametrize(
    ("delta", "where"),
    [
        (Delta(1, "abX", [1, 2], []), "sequence 1 at character 2"),
        (Delta(1, "abc", [1, 9], []), "sequence 1 at token 1"),
    ],
)
def test_the_first_difference_is_named(delta: Delta, where: str) -> None:
    """By its sequence, and its place among the characters or the tokens."""
    delivered = Delivered()
    delivered.new_part(Delta(1, "abc", [1, 2, 3], []))
    delivered.repeat()
    with pytest.raises(DiffersError, match=where):
        delivered.new_part(delta)


def test_an_answer_that_is_shorter_differs() -> None:
    """What was delivered cannot be taken back."""
    delivered = Delivered()
    delivered.new_part(Delta(0, "abc", [1, 2, 3], []))
    delivered.repeat()
    delivered.new_part(Delta(0, "ab", [1, 2], []))
    with pytest.raises(DiffersError, match="sequence 0 ends before"):
        delivered.check_end(0)


def test_overload_before_the_first_message_is_not_a_break(client: Client) -> None:
    """It is raised as it is, when all attempts are used up."""
    with pytest.raises(OverloadedError):
        list(client.stream("overload", resume=True, timeout=1))
