"""Forms are compiled once, beside the busy loop."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.structured_output.compiler import MAX_GRAMMARS, Compilation, GrammarCompiler
from core.structured_output.form import Form, FormError

ONE = Form("regex", "a+")


class Compiler(GrammarCompiler):
    """One whose compilations can be waited for."""

    def __init__(self, folder: Path) -> None:
        self.num_done = 0
        self._changed = threading.Condition()
        super().__init__(folder, 1000, self._count)

    def _count(self) -> None:
        with self._changed:
            self.num_done += 1
            self._changed.notify_all()

    def wait_until(self, num_done: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_done >= num_done, 30)


@pytest.fixture(scope="module")
def shared(tokenizer_folder: Path) -> Iterator[Compiler]:
    compiler = Compiler(tokenizer_folder)
    yield compiler
    compiler.close()


def wait(compiler: Compiler, compilation: Compilation) -> None:
    for number in range(compiler.num_done, compiler.num_done + 1000):
        if compilation.is_done:
            return
        compiler.wait_until(number + 1)


def test_a_form_is_compiled_once(shared: Compiler) -> None:
    """Whoever asks for it again, meanwhile or later, gets the same."""
    first = shared.compile(ONE)
    assert shared.compile(Form("regex", "a+")) is first
    wait(shared, first)
    assert shared.compile(ONE) is first
    assert shared.compile(Form("regex", "b+")) is not first


def test_a_failure_is_not_kept(shared: Compiler) -> None:
    """It may have been of the moment."""
    bad = shared.compile(Form("regex", "("))
    wait(shared, bad)
    with pytest.raises(FormError, match="unclosed group"):
        bad.result()
    assert shared.compile(Form("regex", "(")) is not bad


def test_the_least_recently_used_goes_first(shared: Compiler) -> None:
    """Beyond the number that is kept."""
    kept = shared.compile(ONE)
    others = [shared.compile(Form("choice", f'["{number}"]')) for number in range(MAX_GRAMMARS)]
    assert shared.compile(ONE) is not kept
    assert shared.compile(Form("choice", f'["{MAX_GRAMMARS - 1}"]')) is others[-1]
    assert shared.compile(Form("choice", '["0"]')) is not others[0]


def test_without_a_tokenizer(tmp_path: Path) -> None:
    """The form is refused, with the place where the file was looked for."""
    compiler = Compiler(tmp_path)
    compilation = compiler.compile(ONE)
    compiler.wait_until(1)
    with pytest.raises(FormError, match=f"needs the model's tokenizer.json, and there is none in {tmp_path}"):
        compilation.result()
    compiler.close()


def test_the_vocabulary_may_be_read_before_it_is_needed(tokenizer_folder: Path, tmp_path: Path) -> None:
    """Then whoever starts the core hears if there is none."""
    compiler = Compiler(tokenizer_folder)
    compiler.preload()
    wait(compiler, compiler.compile(ONE))
    compiler.close()
    with pytest.raises(ValueError, match="there is none in"):
        Compiler(tmp_path).preload()


def test_closed_while_it_compiles(tokenizer_folder: Path) -> None:
    """No thread and no process is left, and every compilation has ended."""
    compiler = Compiler(tokenizer_folder)
    compilations = [compiler.compile(Form("regex", f"a{{{number}}}")) for number in range(50)]
    compiler.close()
    assert all(compilation.is_done for compilation in compilations)
