"""Files of keys."""

import hashlib
from pathlib import Path

import pytest

from service.security.api_keys import ApiKeys
from service.security.watched_files import SecurityFileError

KEY = "0123456789abcdef"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_forms(path: Path) -> None:
    """Keys in the clear or as their SHA-256, several of one name, comments and empty lines."""
    hidden = hashlib.sha256(b"a key that nobody can read here").hexdigest()
    path.write_text(f"# ours\n\nalice:{KEY}\r\n  bob:sha256:{hidden.upper()}  \nalice:{KEY}:next\nalice:{KEY}\n")
    keys = ApiKeys(path)
    assert keys.names == {"alice", "bob"}
    assert keys.name_of(KEY.encode()) == keys.name_of(f"{KEY}:next".encode()) == "alice"
    assert keys.name_of(b"a key that nobody can read here") == "bob"
    for wrong in ("", "alice", KEY[:-1], f"{KEY}x", f"sha256:{hidden}", hidden, f"alice:{KEY}"):
        assert keys.name_of(wrong.encode()) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no key"),
        ("# alice\n", "holds no key"),
        (f"alice:{KEY}\n{KEY}", "line 2 must be NAME:KEY or NAME:sha256:HEX"),
        (f"a lice:{KEY}", "line 1 must be NAME:KEY"),
        (f"{'n' * 65}:{KEY}", "line 1 must be NAME:KEY"),
        (f"alice:{KEY[:-1]}", "line 1: the key of alice must have 16 to 512 printable ASCII characters"),
        (f"alice:{KEY} {KEY}", "line 1: the key of alice must have"),
        (f"alice:{KEY}é", "line 1: the key of alice must have"),
        ("alice:" + 513 * "k", "line 1: the key of alice must have"),
        ("alice:sha256:0123", "line 1: sha256 must be 64 hexadecimal digits, got 4"),
        (f"alice:{KEY}\nbob:{KEY}", "line 2: bob has the key of alice"),
    ],
)
def test_what_cannot_be(path: Path, text: str, message: str) -> None:
    """A file out of form is refused with its line, and nothing of a key in the text."""
    path.write_text(text)
    with pytest.raises(SecurityFileError, match=message) as raised:
        ApiKeys(path)
    assert str(path) in str(raised.value)
    assert KEY[:8] not in str(raised.value)


def test_not_text(path: Path) -> None:
    """Bytes that are no UTF-8 are refused by the name of the file."""
    path.write_bytes(b"alice:\xff")
    with pytest.raises(SecurityFileError, match="is not UTF-8"):
        ApiKeys(path)


def test_new_keys_count_at_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A key that is taken out opens nothing any more; a broken file changes nothing, and is logged without keys."""
    path.write_text(f"alice:{KEY}\nbob:{KEY}bob\n")
    keys = ApiKeys(path)
    path.write_text(f"alice:{KEY}\n")
    assert (keys.name_of(f"{KEY}bob".encode()), keys.name_of(KEY.encode())) == (None, "alice")
    path.write_text(f"{KEY}\n")
    assert keys.name_of(KEY.encode()) == "alice"
    assert "what was read before stays in force" in caplog.text
    assert KEY not in caplog.text
