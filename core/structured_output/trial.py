"""The trial process: compiles forms before the core does, so that one that is too much ends this process only.

A line in, ``Form`` as JSON; a line out, ``Verdict``. It ends with its input. The kernel ends it when one form takes
more CPU time, memory or stack than allowed: nothing in it has to be awake for that.
"""

import resource
import signal
import sys
from pathlib import Path

import msgspec
from llguidance import LLTokenizer

from core.structured_output.form import Form, FormError
from core.structured_output.grammar_text import write_grammar
from core.structured_output.verdict import MAX_CPU_S, Verdict
from core.structured_output.vocabulary import VocabularyError, load_vocabulary, start_matcher, walk

_MAX_MEMORY_BYTES = 1 << 30
"""Beside what the process has when it is ready."""
_MAX_STACK_BYTES = 2 << 20
"""The core's own threads have more: what passes here passes there."""


def judge(form: Form, vocabulary: LLTokenizer) -> Verdict:
    try:
        grammar = write_grammar(form)
        walk(start_matcher(vocabulary, grammar))
    except FormError as error:
        return Verdict(fault=str(error))
    except (ValueError, RecursionError) as error:  # the library's own refusals, and Python's
        return Verdict(fault="is nested too deeply" if isinstance(error, RecursionError) else str(error)[:300])
    return Verdict(grammar)


def main(folder: str, vocab_size: str) -> None:
    """Until the input ends."""
    for signum in (signal.SIGINT, signal.SIGTERM):  # They are for the core, which may drain, and whose end ends this.
        signal.signal(signum, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        vocabulary = load_vocabulary(Path(folder), int(vocab_size))
    except VocabularyError as error:
        sys.exit(str(error))
    _limit_resources()
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_S)
        verdict = judge(msgspec.json.decode(line, type=Form), vocabulary)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(msgspec.json.encode(verdict) + b"\n")
        sys.stdout.buffer.flush()


def _limit_resources() -> None:
    num_pages = int(Path("/proc/self/statm").read_text().split()[0])
    for kind, most in (
        (resource.RLIMIT_AS, num_pages * resource.getpagesize() + _MAX_MEMORY_BYTES),
        (resource.RLIMIT_STACK, _MAX_STACK_BYTES),
    ):
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
