"""Errors as routers make the best of them."""

import grpc
import pytest

from service.errors import InvalidRequest, QueueFull, ResourceExhausted, ServiceError, Unavailable, Unimplemented
from service.servicers.vllm_engine.statuses import as_routers_expect


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (ResourceExhausted("too long", reason="PROMPT_EXCEEDS_KV_CACHE"), "input"),
        (ResourceExhausted("too many", reason="TOO_MANY_SEQUENCES"), "sampling_params.n"),
        (Unimplemented("cannot embed", reason="MODEL_CANNOT_EMBED"), "request"),
    ],
)
def test_what_no_retry_helps_is_the_clients(error: ServiceError, field: str) -> None:
    """INVALID_ARGUMENT with the reason that it had, and a field."""
    with pytest.raises(InvalidRequest) as raised, as_routers_expect():
        raise error
    assert (raised.value.code, raised.value.reason) == (grpc.StatusCode.INVALID_ARGUMENT, error.reason)
    assert raised.value.violations == [(field, error.message)]


@pytest.mark.parametrize("error", [QueueFull("full"), Unavailable("draining"), ValueError("ours")])
def test_the_others_stay_what_they_are(error: Exception) -> None:
    """Routers try again elsewhere, or report a fault of the server."""
    with pytest.raises(type(error)) as raised, as_routers_expect():
        raise error
    assert raised.value is error
