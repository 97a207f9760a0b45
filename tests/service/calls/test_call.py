"""What is known of a call."""

import asyncio
from types import SimpleNamespace

import pytest

from core.wire.messages import EngineCoreRequest, FinishReason, LoRARequest
from core.wire.sampling_params import SamplingParams
from service.calls.call import Call, SequenceEnd, current_call, running


def a_request(core_id: str, name: str, lora: LoRARequest | None = None) -> EngineCoreRequest:
    params = SamplingParams(max_tokens=7)
    return EngineCoreRequest(core_id, [1, 2, 3], None, params, None, 0.0, lora, None, None, external_req_id=name)


def an_end(num_output_tokens: int, heard_at: float | None) -> SequenceEnd:
    return SequenceEnd("a", FinishReason.STOP, num_output_tokens, 0, 0, None, None, None, None, heard_at)


async def test_tasks_of_a_call() -> None:
    """What runs in a call, and what tasks it starts, is on its behalf; nothing else is."""

    async def of_whom() -> Call | None:
        return current_call()

    assert current_call() is None
    with running(Call("/S/M")) as call:
        assert current_call() is call
        task = asyncio.create_task(of_whom())
    assert current_call() is None
    assert await task is call


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (SimpleNamespace(request_id="r", model="m"), ("r", "m")),
        (SimpleNamespace(id="k", model_name="triton"), ("k", "triton")),
        (SimpleNamespace(request_id="", model=""), ("", "served")),
        (SimpleNamespace(request_id="two\nlines", model="x" * 257), ("", "served")),
        (b"no names", ("", "served")),
    ],
)
def test_names_in_a_request(message: object, names: tuple[str, str]) -> None:
    """Each API has its own fields for the names; one that may not stand in a line of the log is none."""
    call = Call("/S/M", model="served")
    call.read(message)
    assert (call.request_id, call.model) == names


def test_sequences() -> None:
    """A call has the name that the server made, tokens of all its sequences, and the first token of the first."""
    call = Call("/S/M")
    call.submit([a_request("0_r-1", "r"), a_request("1_r-1", "r", LoRARequest("poet", 1, "/p"))])
    call.ends += [an_end(2, call.started_at + 3), an_end(5, call.started_at + 1), an_end(0, None)]
    assert (call.request_id, call.num_prompt_tokens, call.num_sequences, call.num_output_tokens) == ("r", 3, 2, 7)
    assert call.time_to_first_token_s == pytest.approx(1)


def test_trace_headers() -> None:
    """The core is told the caller's trace as it came, or else ours; tracestate means nothing alone."""
    given = [("user-agent", "x"), ("traceparent", "00-1-2-01"), ("tracestate", "a=b"), ("other-bin", b"\0")]
    call = Call("/S/M", given)
    assert call.trace_headers == {"traceparent": "00-1-2-01", "tracestate": "a=b"}
    call.trace("1", {"traceparent": "00-1-3-01"})
    assert call.trace_headers == {"traceparent": "00-1-3-01"}
    assert Call("/S/M", [("tracestate", "a=b")]).trace_headers is None
