"""Tests of programs that a machine may lack."""

import pytest

from tests.toolchain import require

MISSING = "no-such-program"


def test_what_is_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test goes on."""
    monkeypatch.setenv("CI", "true")
    require("sh", "ls")
    require()


def test_a_missing_program_skips_the_test_but_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its name: a skipped test in CI would look like one that passed."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"needs {MISSING}"):
        require("sh", MISSING)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"CI lacks {MISSING}"):
        require("sh", MISSING)
