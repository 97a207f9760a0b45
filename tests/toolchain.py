"""Programs that a test runs and a machine may lack."""

import os
import shutil

import pytest


def require(*programs: str) -> None:
    """Skips the test where one of ``programs`` is missing. With CI=true it fails: `.ci/run` is to install them all."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"CI lacks {', '.join(missing)}", pytrace=False)
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
