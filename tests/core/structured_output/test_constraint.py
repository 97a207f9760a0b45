"""One request's output is kept in its form."""

import random
from collections.abc import Callable
from concurrent.futures import Future

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer

from core.structured_output.compiler import Compilation, Grammar
from core.structured_output.constraint import Constraint
from core.structured_output.form import FormError
from core.structured_output.masks import MaskThreads
from core.wire.messages import REFUSED
from tests.core.structured_output.following import matcher_of


def grammar_of(vocabulary: LLTokenizer, start: Callable[[], LLMatcher]) -> Grammar:
    return Grammar(start, frozenset(vocabulary.eos_tokens))


class Followed:
    """A constraint of a regular expression, started."""

    def __init__(
        self, vocabulary: LLTokenizer, regex: str, ends: set[int], text: str = "", grammar: Grammar | None = None
    ) -> None:
        self.vocabulary = vocabulary
        future: Future[Grammar] = Future()
        future.set_result(grammar or grammar_of(vocabulary, lambda: matcher_of(vocabulary, "regex", regex)))
        self.threads = MaskThreads()
        num_words = -(-vocabulary.vocab_size // 32)
        self.constraint = Constraint("structured_outputs.regex", Compilation(future), ends, self.threads, num_words)
        self.cause = self.constraint.start(vocabulary.greedy_tokenize(text))

    def accept(self, text: str) -> bool:
        """Once it is known what may come."""
        assert self.allowed
        return self.constraint.accept(self.token(text))

    @property
    def allowed(self) -> set[int]:
        while not self.constraint.is_ready:
            self.threads.wait()
        bits = np.unpackbits(self.constraint.mask.view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())

    def token(self, text: str) -> int:
        (token_id,) = self.vocabulary.greedy_tokenize(text)
        return token_id


def test_only_what_the_form_allows(vocabulary: LLTokenizer) -> None:
    """Until the text is complete, when its end is allowed too."""
    (eos,) = vocabulary.eos_tokens
    followed = Followed(vocabulary, "foo|far+", {eos})
    assert followed.allowed == {followed.token("f"), followed.token("foo")}
    assert followed.accept("f")
    assert followed.allowed == {followed.token("o"), followed.token("a")}
    assert followed.accept("a")
    assert followed.accept("r")
    assert followed.allowed == {followed.token("r"), eos}


@pytest.mark.parametrize("end", [0, 31, 63, 268])
def test_what_ends_the_request_ends_the_text(vocabulary: LLTokenizer, end: int) -> None:
    """Its own stop tokens, wherever their bits are; the vocabulary's end is nothing to it then."""
    followed = Followed(vocabulary, "foo", {end}, "foo")
    assert followed.allowed == {end}
    assert not followed.constraint.is_exhausted


def test_request_without_an_end(vocabulary: LLTokenizer) -> None:
    """It goes on while the form can, and is exhausted with it."""
    followed = Followed(vocabulary, "fo{1,2}", set(), "fo")
    assert followed.allowed == {followed.token("o")}
    assert not followed.constraint.is_exhausted
    assert followed.accept("o")
    assert followed.constraint.is_exhausted


def test_goes_on_behind_an_output(vocabulary: LLTokenizer) -> None:
    """Which must follow the form so far."""
    followed = Followed(vocabulary, "[a-c]+x", {5}, "abcabc")
    assert followed.cause is None
    assert followed.token("x") in followed.allowed
    broken = Followed(vocabulary, "[a-c]+x", {5}, "abd")
    assert broken.cause == "the output so far does not follow structured_outputs.regex"


def test_token_that_is_not_allowed(vocabulary: LLTokenizer) -> None:
    """It is not accepted, and there is a reason."""
    followed = Followed(vocabulary, "foo", {5})
    assert not followed.accept("bar")
    assert str(followed.constraint.fault).startswith("structured_outputs.regex: ")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (FormError("is no JSON"), f"{REFUSED}structured_outputs.json is no JSON"),
        (OSError("no memory"), "structured_outputs.json could not be compiled: OSError('no memory')"),
    ],
)
def test_form_that_does_not_compile(error: Exception, cause: str) -> None:
    """The client's fault is a refusal, ours is not."""
    future: Future[Grammar] = Future()
    constraint = Constraint("structured_outputs.json", Compilation(future), (), MaskThreads(), 32)
    assert not constraint.is_settled
    future.set_exception(error)
    assert constraint.is_settled
    assert constraint.start([]) == cause


def test_nobody_waits_for_a_closed_one() -> None:
    """What has not begun never will, once the last of those who wait for it is closed."""
    future: Future[Grammar] = Future()
    compilation = Compilation(future)
    constraints = [Constraint("f", compilation, (), MaskThreads(), 32) for _ in range(2)]
    constraints[0].close()
    constraints[0].close()
    assert not future.cancelled()
    constraints[1].close()
    assert future.cancelled()
    assert compilation.is_useless


def test_what_others_have_used_up_is_no_fault_of_the_request(vocabulary: LLTokenizer) -> None:
    """It goes on by a matcher of its own, and the next request for the form gets a new grammar."""
    text = "a" * 40
    regex = "(.*a.{30}){2}"
    grammar = grammar_of(vocabulary, lambda: matcher_of(vocabulary, "regex", regex))
    following = Followed(vocabulary, regex, set(), grammar=grammar)
    for char in text:
        assert following.accept(char)
    wear_out(vocabulary, grammar)
    assert following.accept("b")
    assert following.allowed
    assert following.constraint.fault is None
    assert grammar.is_worn
    compilation: Future[Grammar] = Future()
    compilation.set_result(grammar)
    assert Compilation(compilation).is_useless


def wear_out(vocabulary: LLTokenizer, grammar: Grammar) -> None:
    """By texts of which each needs other states."""
    draw = random.Random(0)
    chars = [vocabulary.greedy_tokenize(char)[0] for char in "abc"]
    matcher = grammar.matcher()
    while not matcher.is_error():
        matcher = grammar.matcher()
        while not matcher.is_stopped() and not matcher.is_error():
            matcher.compute_bitmask()
            matcher.consume_token(draw.choice(chars))
