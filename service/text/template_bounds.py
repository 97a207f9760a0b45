"""What a chat template may use up. It is a program that came with the model: the sandbox keeps it from everything but
what it is given, and these bounds keep it from running for ever and from making texts without end.

    loops and macros    each turn counts; every so often the CPU time of the thread is looked at
    text                what is put out, ``~``, ``+``, ``*`` and ``%``, and methods that pad, replace or join
    numbers             ``**`` and ``*``

The operations are checked before they are done: none of them can be interrupted.
"""

import re
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_CPU_S = 10.0
MAX_CHARS = 64 * 2**20
"""Of a text, and of all that is put out, where an answer that is put together first counts twice."""
_MAX_BITS = 2**16
_TURNS_PER_LOOK = 256
_LARGE_NUMBER = re.compile(r"\d{7}|\*")
_LONG = str, list, tuple
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs"}


class OutOfBoundsError(Exception):
    """The template uses more than it may."""


class Allowance:
    """Of one rendering, by the thread that makes this."""

    def __init__(self, max_cpu_s: float) -> None:
        self._max_cpu_s = max_cpu_s
        self._ends_at = time.thread_time() + max_cpu_s
        self._num_turns = 0
        self._num_chars = 0

    def turn(self) -> None:
        """Another turn of a loop, or call of a macro."""
        self._num_turns += 1
        if self._num_turns % _TURNS_PER_LOOK == 0 and time.thread_time() > self._ends_at:
            raise OutOfBoundsError(f"it took more than {self._max_cpu_s:g} s")

    def put_out(self, num_chars: int) -> None:
        self._num_chars += num_chars
        check_size(self._num_chars)


ALLOWANCE: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def check_size(num_chars: int) -> None:
    if num_chars > MAX_CHARS:
        raise OutOfBoundsError(f"its text would have more than {MAX_CHARS} characters")


class _Counting(Extension):
    """What the nodes that are put into a template call."""

    def turn(self) -> None:
        if (allowance := ALLOWANCE.get()) is not None:
            allowance.turn()

    def checked(self, text: str) -> str:
        check_size(len(text))
        return text

    def called(self, method: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
        attribute = nodes.ExtensionAttribute(self.identifier, method)
        call = nodes.Call(attribute, arguments, [], None, None)
        call.set_lineno(line, override=True)
        return call


class _Inserted(NodeTransformer):
    """Puts ``turn`` at the begin of everything that can be repeated, and ``checked`` around ``~``."""

    def __init__(self, counting: _Counting) -> None:
        self._counting = counting

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._counted(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._counting.called("checked", [node], node.lineno)

    def _counted(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        turn = self._counting.called("turn", [], node.lineno)
        node.body.insert(0, nodes.ExprStmt(turn).set_lineno(node.lineno))
        return node  # type: ignore[no-any-return]


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Its templates keep to the bounds of the ``ALLOWANCE`` that is set when they are rendered."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, extensions: Iterable[type[Extension]], **options: Any) -> None:
        super().__init__(extensions=[*extensions, _Counting], finalize=_put_out, **options)
        self.filters["center"] = _checked_center(self.filters["center"])

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template = super()._parse(source, name, filename)
        counting = self.extensions[_Counting.identifier]
        assert isinstance(counting, _Counting), "made above"
        _Inserted(counting).visit(template)
        template.set_environment(self)
        return template

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002
        """``left operator right``, unless that is too much. Raises OutOfBoundsError."""
        _CHECKS[operator](left, right)
        return self.binop_table[operator](left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Raises OutOfBoundsError for a method of a string that would make too much of it."""
        # The sandbox wraps the methods that lay out.
        method = getattr(function, "__wrapped__", function)
        if isinstance(text := getattr(method, "__self__", None), str):
            _check_method(method.__name__, text, [*args, *kwargs.values()])
        return super().call(context, function, *args, **kwargs)


def _put_out(value: Any) -> Any:
    if isinstance(value, str) and (allowance := ALLOWANCE.get()) is not None:
        allowance.put_out(len(value))
    return value


def _check_method(name: str, text: str, arguments: list[Any]) -> None:
    if name in _PADDING:
        check_size(len(text) + sum(abs(each) * (1 + text.count("\t")) for each in arguments if isinstance(each, int)))
    elif name in ("format", "format_map"):
        _check_layout(text)
    elif name == "replace" and len(arguments) >= 2 and all(isinstance(each, str) for each in arguments[:2]):
        old, new = arguments[:2]
        check_size(len(text) + text.count(old) * len(new))
    elif name == "join" and arguments and isinstance(arguments[0], list | tuple):
        check_size(sum(len(each) + len(text) for each in arguments[0] if isinstance(each, str)))


def _check_layout(layout: str) -> None:
    if _LARGE_NUMBER.search(layout):
        raise OutOfBoundsError("its layout has a width of more than six digits, or one that is a variable")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    for repeated, times in ((left, right), (right, left)):
        if isinstance(repeated, _LONG) and isinstance(times, int):
            check_size(len(repeated) * times)


def _check_sum(left: Any, right: Any) -> None:
    if isinstance(left, _LONG) and isinstance(right, _LONG):
        check_size(len(left) + len(right))


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(base.bit_length() * exponent)


def _check_bits(num_bits: int) -> None:
    if num_bits > _MAX_BITS:
        raise OutOfBoundsError(f"its number would have more than {_MAX_BITS} bits")


def _check_modulo(left: Any, _right: Any) -> None:
    if isinstance(left, str):
        _check_layout(left)


_CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "*": _check_product,
    "+": _check_sum,
    "**": _check_power,
    "%": _check_modulo,
}


def _checked_center(center: Callable[..., str]) -> Callable[..., str]:
    def checked(value: str, width: int = 80) -> str:
        check_size(width)
        return center(value, width)

    return checked
