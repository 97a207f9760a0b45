"""What a client's key does not open."""

import contextvars

import pytest

from service.errors import PermissionDenied
from service.security.caller import CALLER, check_is_no_client


def test_what_concerns_all_callers() -> None:
    """It is refused to who came with a key, by the key's name, and to nobody where no keys are asked for."""
    check_is_no_client("FlushCache")
    call = contextvars.copy_context()
    call.run(CALLER.set, "alice")
    with pytest.raises(PermissionDenied, match="FlushCache is not for the key of alice"):
        call.run(check_is_no_client, "FlushCache")
