"""EBNF, in the dialect of xgrammar and llama.cpp's GBNF, as a Lark grammar for llguidance.

    root ::= "SELECT " column (", " column)*  # a comment
    column ::= [a-z_] [a-z0-9_]{0,30} | "*"

llguidance splits text into lexemes as a programming language does, the longest first: ``[a-z]+ "x"`` would never see
its x. So a grammar without recursion becomes one lexeme, which is exact, and any other one gets lexemes of a single
character, of which none begins another.
"""

import graphlib
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from core.structured_output.form import FormError

_TOKEN = re.compile(
    r"""(?P<space>(?:\s|\#[^\n]*)+)
    |(?P<define>::=)
    |(?P<name>[A-Za-z_][\w.-]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<chars>\[(?:[^\]\\\n]|\\.)*\])
    |(?P<repeat>[*+?]|\{\s*\d{1,6}\s*(?:,\s*(?:\d{1,6}\s*)?)?\})
    |(?P<lookahead>\(\s*=)
    |(?P<mark>[()|.])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|(.)", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "f": "\f", "v": "\v", "a": "\a", "b": "\b", "e": "\x1b"}
_LARK = re.compile(r"(?m)^\s*(?:%llguidance\b|start\s*:(?!:))")
_ROOT = "root"


def ebnf_to_lark(text: str) -> str:
    """Raises FormError. Lark, which has a rule ``start:``, is left as it is."""
    if _LARK.search(text):
        return text
    rules = _Parser(text).rules()
    if _ROOT not in rules:
        raise FormError(f"must have a rule named {_ROOT}")
    is_recursive = _is_recursive(rules)
    numbers = {name: number for number, name in enumerate(rules)}
    prefix = "r" if is_recursive else "R"
    lines = [f"{prefix}{numbers[name]}: {_spell(body, numbers, prefix)}" for name, body in rules.items()]
    return "\n".join([f"start: {prefix}{numbers[_ROOT]}", *lines])


class _Reference(NamedTuple):
    name: str
    position: int


_Body = list["str | _Reference"]
"""Of a rule: Lark, but for the rules it refers to."""


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


class _Parser:
    """One pass over the tokens. A rule ends where the next ``name ::=`` begins, or with the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*_tokenize(text), _Token("end", "", len(text))]
        self._next = 0

    def rules(self) -> dict[str, _Body]:
        rules: dict[str, _Body] = {}
        while self._peek().kind != "end":
            name, define = self._take(), self._take()
            if name.kind != "name" or define.kind != "define":
                raise _fault(self._text, name.position, "a rule begins with its name and ::=")
            if name.text in rules:
                raise _fault(self._text, name.position, f"the rule {name.text!r} is there already")
            rules[name.text] = self._alternatives()
            if self._peek().text == ")":
                raise _fault(self._text, self._peek().position, "this parenthesis was not opened")
        self._check_references(rules)
        return rules

    def _check_references(self, rules: dict[str, _Body]) -> None:
        for body in rules.values():
            for part in body:
                if isinstance(part, _Reference) and part.name not in rules:
                    raise _fault(self._text, part.position, f"there is no rule {part.name!r}")

    def _peek(self, ahead: int = 0) -> _Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _alternatives(self) -> _Body:
        body = self._sequence()
        while self._peek().text == "|":
            self._take()
            body += [" | ", *self._sequence()]
        return body

    def _sequence(self) -> _Body:
        body: _Body = []
        while not self._ends_sequence():
            item = self._item()
            while self._peek().kind == "repeat":
                item = ["(", *item, ")", "".join(self._take().text.split())]
            body += [*item, " "]
        return body or ['""']

    def _ends_sequence(self) -> bool:
        token = self._peek()
        begins_rule = token.kind == "name" and self._peek(1).kind == "define"
        return begins_rule or token.kind == "end" or token.text in ("|", ")")

    def _item(self) -> _Body:
        token = self._take()
        match token.kind:
            case "name" if not self._is_call(token):
                return [_Reference(token.text, token.position)]
            case "string":
                return [_spell_string(self._text, token)]
            case "chars":
                return [_spell_chars(self._text, token)]
            case "mark" if token.text == ".":
                return ["/(?s:.)/"]
            case "mark" if token.text == "(":
                return ["(", *self._group(token), ")"]
            case _:
                raise _fault(self._text, token.position, _why_not(token))

    def _is_call(self, name: _Token) -> bool:
        """Such as TagDispatch(…), which is xgrammar's own."""
        return self._peek().text == "(" and self._peek().position == name.position + len(name.text)

    def _group(self, opening: _Token) -> _Body:
        body = self._alternatives()
        if self._take().text != ")":
            raise _fault(self._text, opening.position, "this parenthesis is not closed")
        return body


def _why_not(token: _Token) -> str:
    reasons = {"lookahead": "lookahead is not supported", "name": f"{token.text}(…) is not supported"}
    return reasons.get(token.kind, f"{token.text!r} has no place here" if token.text else "it ends too early")


def _tokenize(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _fault(text, position, f"{text[position : position + 20]!r} is not understood")
        if found.lastgroup != "space":
            assert found.lastgroup is not None, "every alternative is named"
            yield _Token(found.lastgroup, found[0], position)
        position = found.end()


def _spell_string(text: str, token: _Token) -> str:
    chars = _unescaped(text, token.text[1:-1], token.position)
    return " ".join(json.dumps(char, ensure_ascii=False) for char, _ in chars) or '""'


def _spell_chars(text: str, token: _Token) -> str:
    """A class of characters, each by its number: none has a meaning of its own then."""
    content = token.text[1:-1]
    negation = "^" if content.startswith("^") else ""
    chars = _unescaped(text, content.removeprefix("^"), token.position)
    if not chars:
        raise _fault(text, token.position, "a class of characters must not be empty")
    spelled = [
        "-" if (char, is_escaped) == ("-", False) and 0 < place < len(chars) - 1 else f"\\x{{{ord(char):x}}}"
        for place, (char, is_escaped) in enumerate(chars)
    ]
    return f"/[{negation}{''.join(spelled)}]/"


def _unescaped(text: str, escaped: str, position: int) -> list[tuple[str, bool]]:
    """The characters of a string or class, and whether each was escaped."""
    chars = []
    for x, u, long_u, letter, plain in _ESCAPE.findall(escaped):
        if number := x or u or long_u:
            chars.append((_char_of(text, int(number, 16), position), True))
        elif letter and letter.isalnum() and letter not in _PLAIN_ESCAPES:
            raise _fault(text, position, f"the escape \\{letter} is not known")
        else:
            chars.append((_PLAIN_ESCAPES.get(letter, letter), True) if letter else (plain, False))
    return chars


def _char_of(text: str, number: int, position: int) -> str:
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        raise _fault(text, position, f"{number:X} is no character of Unicode")
    return chr(number)


def _spell(body: _Body, numbers: dict[str, int], prefix: str) -> str:
    return "".join(part if isinstance(part, str) else f"{prefix}{numbers[part.name]}" for part in body)


def _is_recursive(rules: dict[str, _Body]) -> bool:
    """Whether any rule comes back to itself."""
    graph = {name: {part.name for part in body if isinstance(part, _Reference)} for name, body in rules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError:
        return True
    return False


def _fault(text: str, position: int, what: str) -> FormError:
    before = text[:position]
    line, column = before.count("\n") + 1, position - before.rfind("\n")
    return FormError(f"line {line}, column {column}: {what}")
