"""The real model that tests run, as ``make model`` leaves it in the cache, and what it should say."""

import json
import os
from pathlib import Path
from typing import Any

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
SMOLLM2_FOLDER = _CACHE / "sluicegate/models/smollm2-135m"
SMOLLM2_CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data/reference/smollm2_135m_q4_1.json").read_text()
)["cases"]


def find_smollm2() -> Path:
    """The GGUF file; the tests never fetch it themselves."""
    found = sorted(SMOLLM2_FOLDER.glob("*.gguf"))
    if not found:
        raise FileNotFoundError(f"no .gguf file in {SMOLLM2_FOLDER}: run `make model` (sluicegate pull smollm2-135m)")
    return found[0]
