import gc
import threading
from zlib import crc32

import pytest

from sluicegate_client import (
    AlreadyExistsError,
    CallCancelledError,
    Client,
    DeadlineExceededError,
    FinishReason,
    InvalidRequestError,
    OverloadedError,
    Retry,
    SluicegateError,
    Started,
    UnavailableError,
    Usage,
    Violation,
)
from tests.clients.fake_server import FakeServer, fake_server

SOON_S = 10.0


@pytest.fixture
def client(server: FakeServer):
    with Client(server.address) as client:
        yield client


def test_generate_returns_text_tokens_reason_and_usage(client: Client) -> None:
    """One call, one answer, in plain Python values."""
    generation = client.generate("one two", max_tokens=2)
    assert generation.text == "one two "
    assert generation.token_ids == [0, 1]
    assert generation.finish_reason is FinishReason.LENGTH
    assert generation.finish_reason == "length"
    assert generation.usage == Usage(2, 0, 2)
    assert generation.logprobs[0].top == {0: -0.5}
    assert generation.request_id == "made-by-server"


def test_n_sequences_come_as_n_outputs(client: Client) -> None:
    """The outputs stand in order of their index."""
    assert [output.index for output in client.generate("one", n=3, temperature=1).outputs] == [0, 1, 2]


def test_a_stream_yields_deltas_then_holds_the_rest(client: Client) -> None:
    """Iteration gives the deltas; started, finished and usage stand on the stream."""
    stream = client.stream("one two", request_id="mine", n=2)
    assert stream.usage is None
    assert [(delta.index, delta.text) for delta in stream] == [(0, "one "), (0, "two "), (1, "one "), (1, "two ")]
    assert stream.request_id == "mine"
    assert stream.started == Started(2, 0, [], [])
    assert stream.finished[1].finish_reason is FinishReason.STOP
    assert stream.finished[1].stop == "end"
    assert stream.usage == Usage(2, 0, 4)


def test_a_chat_is_streamed_like_a_prompt(client: Client) -> None:
    """chat= replaces the prompt."""
    assert "".join(delta.text for delta in client.stream(chat=[{"role": "user", "content": "hi you"}])) == "hi you "


@pytest.mark.parametrize("way", ["cancel", "with", "break"])
def test_leaving_a_stream_cancels_the_call(client: Client, server: FakeServer, way: str) -> None:
    """cancel(), the end of the with block and dropping the stream all reach the server."""
    stream = client.stream("one hang")
    assert next(stream).text == "one "
    if way == "cancel":
        stream.cancel()
        assert list(stream) == []
        assert stream.cancelled
    elif way == "with":
        with stream:
            pass
    else:
        del stream
        gc.collect()
    assert server.service.ended.wait(SOON_S)


def test_cancel_from_another_thread_ends_the_iteration(client: Client) -> None:
    """A reader blocked in next() is let go quietly."""
    stream = client.stream("one hang")
    assert next(stream).text == "one "
    canceller = threading.Thread(target=stream.cancel)
    canceller.start()
    assert list(stream) == []
    canceller.join()


def test_a_call_that_the_server_loses_is_not_a_quiet_end(server: FakeServer) -> None:
    """Closing the client under a stream raises; only cancel() is quiet."""
    client = Client(server.address)
    stream = client.stream("one hang")
    next(stream)
    client.close()
    with pytest.raises(CallCancelledError):
        next(stream)


def test_an_invalid_request_names_the_fields(client: Client) -> None:
    """The message comes first, the violations are data, the gRPC error is the cause."""
    with pytest.raises(InvalidRequestError) as raised:
        client.generate("refuse")
    assert str(raised.value) == "sampling_params.top_p: must be in (0, 1], got 3"
    assert raised.value.violations == (Violation("sampling_params.top_p", "must be in (0, 1], got 3"),)
    assert raised.value.reason == "INVALID_REQUEST"
    assert raised.value.__cause__ is not None


def test_a_stream_that_is_refused_raises_at_the_first_delta(client: Client) -> None:
    """Errors of a stream are the same ones."""
    with pytest.raises(InvalidRequestError):
        next(client.stream("refuse"))


def test_overload_and_leaving_say_when_to_retry(server: FakeServer) -> None:
    """RetryInfo becomes retry_after, in seconds."""
    client = Client(server.address, retry=Retry(max_attempts=1))
    with pytest.raises(OverloadedError) as overloaded:
        client.generate("overload")
    assert overloaded.value.retry_after == 1.5
    with pytest.raises(UnavailableError, match=r"^the server is draining$") as leaving:
        client.tokenize("leave")
    client.close()
    assert leaving.value.retry_after == 2.0


def test_no_server_is_said_with_the_address() -> None:
    """A connection refused is readable and says where."""
    with (
        Client("127.0.0.1:1", retry=Retry(max_attempts=1)) as client,
        pytest.raises(UnavailableError, match=r"no connection to 127.0.0.1:1: connection refused; is"),
    ):
        client.generate("x")


def test_the_timeout_is_a_deadline_that_the_server_sees(client: Client, server: FakeServer) -> None:
    """A call past its timeout raises DeadlineExceededError, a TimeoutError, and ends on the server."""
    with pytest.raises(DeadlineExceededError) as raised:
        client.generate("hang", timeout=0.2)
    assert isinstance(raised.value, TimeoutError)
    assert server.service.ended.wait(SOON_S)
    with pytest.raises(DeadlineExceededError):
        list(client.stream("hang", timeout=0.2))


def test_every_error_can_be_caught_as_one() -> None:
    """SluicegateError is the base of all."""
    assert issubclass(AlreadyExistsError, SluicegateError)


def test_tokenize_and_detokenize(client: Client, server: FakeServer) -> None:
    """Text or chat to tokens, tokens to text."""
    assert client.tokenize("a bcd", add_special_tokens=False) == [crc32(b"a"), crc32(b"bcd")]
    assert not server.service.requests[-1].add_special_tokens
    assert client.tokenize(chat=[{"role": "user", "content": "ab"}]) == [crc32(b"ab")]
    assert client.detokenize([1, 2], skip_special_tokens=True) == "x xx"


def test_wait_until_ready_waits_for_health() -> None:
    """It returns once the server serves, though it was NOT_SERVING when the call began."""
    with fake_server(serving=False) as server, Client(server.address) as client:
        waiter = threading.Thread(target=client.wait_until_ready, args=(SOON_S,))
        waiter.start()
        server.set_serving(True)
        waiter.join(SOON_S)
        assert not waiter.is_alive()


def test_wait_until_ready_waits_for_a_server_that_is_not_there_yet(tmp_path) -> None:
    """It may be called before the server has started."""
    address = f"unix:{tmp_path}/socket"
    with Client(address) as client:
        waiter = threading.Thread(target=client.wait_until_ready, args=(SOON_S,))
        waiter.start()
        with fake_server(address):
            waiter.join(SOON_S)
            assert not waiter.is_alive()


def test_wait_until_ready_gives_up_at_its_timeout() -> None:
    """DeadlineExceededError, whether the server is unready or missing."""
    with fake_server(serving=False) as server, Client(server.address) as client, pytest.raises(DeadlineExceededError):
        client.wait_until_ready(timeout=0.2)
    with (
        Client("127.0.0.1:1", retry=Retry(max_attempts=1)) as client,
        pytest.raises(DeadlineExceededError, match=r"127.0.0.1:1 was not ready within"),
    ):
        client.wait_until_ready(timeout=0.2)


def test_a_unix_socket_is_an_address(tmp_path) -> None:
    """unix:/path works like HOST:PORT."""
    address = f"unix:{tmp_path}/socket"
    with fake_server(address), Client(address) as client:
        assert client.generate("one").text == "one "


def test_many_threads_share_a_client(client: Client) -> None:
    """Calls of several threads do not disturb each other."""
    texts: dict[int, str] = {}

    def ask(index: int) -> None:
        texts[index] = client.generate(f"number {index}").text

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {index: f"number {index} " for index in range(8)}
