import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent


def _project(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())["project"]


def test_the_client_alone_needs_what_the_whole_needs() -> None:
    """Its own package file has the same version, and the same range for each dependency."""
    client, whole = _project("clients/python/pyproject.toml"), _project("pyproject.toml")
    assert client["version"] == whole["version"]
    assert set(client["dependencies"]) < set(whole["dependencies"])
