"""Forms become grammars on one thread beside the busy loop, each form once."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from core.spare_thread import submit
from core.structured_output.form import Form
from core.structured_output.masks import GRAMMAR_STACK_BYTES
from core.structured_output.trial_process import TrialProcess

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

logger = logging.getLogger(__name__)

MAX_GRAMMARS = 64
"""Kept for requests to come, the least recently used goes first."""


class Grammar:
    """A compiled form. ``end_token_ids`` are what it takes for the end.

    ``start`` compiles it. Its matchers share the states that the library has made for any of them, and the limit of
    those: what some texts have used up is not there for others any more.
    """

    def __init__(self, start: "Callable[[], LLMatcher]", end_token_ids: frozenset[int]) -> None:
        self.end_token_ids = end_token_ids
        self._start = start
        self._matcher = start()
        self.is_worn = False
        """A matcher has met a limit, as others would."""

    def matcher(self) -> "LLMatcher":
        """At the beginning of a text."""
        return self._matcher.deep_copy()

    def matcher_of_its_own(self) -> "LLMatcher":
        """Instead of one that has met a limit: this one shares with nobody. Takes what it takes to compile."""
        self.is_worn = True
        return self._start()


class Compilation:
    """One form on its way to a grammar, for as many requests as wait for it."""

    def __init__(self, future: "Future[Grammar]") -> None:
        self._future = future
        self._num_waiting = 0

    @property
    def is_done(self) -> bool:
        return self._future.done()

    @property
    def is_useless(self) -> bool:
        """Cancelled, failed or worn: the next request for this form starts another."""
        if not self.is_done or self._future.cancelled():
            return self._future.cancelled()
        return self._future.exception() is not None or self._future.result().is_worn

    def join(self) -> None:
        self._num_waiting += 1

    def leave(self) -> None:
        """One fewer waits. What nobody waits for and has not begun never will."""
        self._num_waiting -= 1
        if not self._num_waiting:
            self._future.cancel()

    def result(self) -> Grammar:
        """Once it is done. Raises FormError, or whatever else kept it from being compiled."""
        return self._future.result()


class GrammarCompiler:
    """Owned by the busy loop, like the cache. ``on_done`` is called from any thread when a compilation ends.

    ``folder`` has the model's tokenizer.json, which is read when the first form comes.
    """

    def __init__(self, folder: Path, vocab_size: int, on_done: Callable[[], None]) -> None:
        self._folder = folder
        self._vocab_size = vocab_size
        self._on_done = on_done
        self._thread = ThreadPoolExecutor(1, "grammar")
        self._trials = TrialProcess(folder, vocab_size)
        self._compilations: OrderedDict[Form, Compilation] = OrderedDict()
        # Of the thread.
        self._vocabulary: LLTokenizer | None = None

    def compile(self, form: Form) -> Compilation:
        """Never raises: the compilation says what went wrong."""
        compilation = self._compilations.get(form)
        if compilation is None or compilation.is_useless:
            compilation = Compilation(self._submit(form))
            self._compilations[form] = compilation
        self._compilations.move_to_end(form)
        if len(self._compilations) > MAX_GRAMMARS:
            self._compilations.popitem(last=False)
        return compilation

    def preload(self) -> None:
        """Read the vocabulary now. Raises VocabularyError if there is none to read."""
        submit(self._thread, self._load_vocabulary, GRAMMAR_STACK_BYTES).result()

    def close(self) -> None:
        """End the thread and the process."""
        self._trials.end()
        self._thread.shutdown(cancel_futures=True)
        self._trials.close()

    def _submit(self, form: Form) -> "Future[Grammar]":
        future = submit(self._thread, lambda: self._compile(form), GRAMMAR_STACK_BYTES)
        future.add_done_callback(lambda _: self._on_done())
        return future

    def _compile(self, form: Form) -> Grammar:
        # Not before it is needed: 50 ms, and 8 MB.
        from core.structured_output.vocabulary import start_matcher

        started = time.monotonic()
        vocabulary = self._load_vocabulary()
        text = self._trials.write_grammar(form)
        grammar = Grammar(lambda: start_matcher(vocabulary, text), frozenset(vocabulary.eos_tokens))
        logger.debug("compiled %s of %d characters, %.3f s", form.kind, len(form.text), time.monotonic() - started)
        return grammar

    def _load_vocabulary(self) -> "LLTokenizer":
        """Once. Raises VocabularyError."""
        from core.structured_output.vocabulary import load_vocabulary

        if self._vocabulary is None:
            self._trials.start()
            self._vocabulary = load_vocabulary(self._folder, self._vocab_size)
        return self._vocabulary
