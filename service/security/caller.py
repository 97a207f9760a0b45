"""Whose key a call was made with."""

from contextvars import ContextVar

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""The name beside the key, never the key, for all that is done for the call; empty where no key is asked for."""
