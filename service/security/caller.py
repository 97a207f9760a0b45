"""Whose key a call was made with."""

from contextvars import ContextVar

from service.errors import PermissionDenied

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""The name beside the key, never the key, for all that is done for the call; empty where no key is asked for."""


def check_is_no_client(method: str) -> None:
    """Who comes to a public address with a key of its own is one caller of several, and has no say over the others.

    Raises PermissionDenied for it, not where no keys are asked for: there are neighbours that one trusts, as routers.
    """
    if name := CALLER.get():
        why = "it concerns the requests of all callers: it is for operators, and for addresses that ask for no key"
        raise PermissionDenied(f"{method} is not for the key of {name}: {why}")
