"""Calls by name: which methods there are, how their arguments are converted, and what a failure says."""

import inspect
import reprlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar, get_type_hints

import msgspec

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100
shortened = _repr.repr
"""``repr`` for error messages: of bounded length."""


class UtilityError(Exception):
    """A utility call that failed; the text is for the caller."""

    def __init__(self, method: str, cause: object) -> None:
        super().__init__(f"Call to {method[:100]} method failed: {cause}")


class UtilityTable:
    """A class whose ``METHODS`` can be called from outside, with the types that they declare, and no others."""

    METHODS: ClassVar[tuple[str, ...]] = ()

    def call(self, method: str, args: list[Any]) -> Any:
        """The result of ``method(*args)``, or a Future of it. Raises UtilityError, and nothing else."""
        if method not in self.METHODS:
            unknown = f"unknown method {shortened(method)}, must be one of {', '.join(self.METHODS)}"
            raise UtilityError(method, unknown)
        function = getattr(self, method)
        try:
            result = function(*_convert(function, args))
        except Exception as error:
            raise UtilityError(method, error) from error
        return _named_after(method, result) if isinstance(result, Future) else result


def _named_after(method: str, result: "Future[Any]") -> "Future[Any]":
    """``result`` whose failure, too, says which call it was."""
    named: Future[Any] = Future()

    def pass_on(done: "Future[Any]") -> None:
        error = done.exception()
        named.set_exception(UtilityError(method, error)) if error else named.set_result(done.result())

    result.add_done_callback(pass_on)
    return named


def _convert(function: Callable[..., Any], args: list[Any]) -> list[Any]:
    """``args`` as the types that ``function`` declares. Raises TypeError if their number or a type is wrong."""
    types = get_type_hints(function)
    arguments = inspect.signature(function).bind(*args).arguments
    return [_convert_one(name, arg, types[name]) for name, arg in arguments.items()]


def _convert_one(name: str, arg: Any, expected: Any) -> Any:
    try:
        return msgspec.convert(arg, expected)
    except msgspec.ValidationError as error:
        wanted = inspect.formatannotation(expected)
        raise TypeError(f"{name} must be {wanted}, got {shortened(arg)}") from error
