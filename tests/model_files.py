"""The real models that tests run, as ``make models`` leaves them in the cache, and what they should say."""

import json
import os
from pathlib import Path
from typing import Any

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
SMOLLM2_FOLDER = _CACHE / "sluicegate/models/smollm2-135m"
GEMMA3_FOLDER = _CACHE / "sluicegate/models/gemma3-270m"


def _read_cases(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/reference" / name).read_text())["cases"]
    return cases


SMOLLM2_CASES = _read_cases("smollm2_135m_q4_1.json")
GEMMA3_CASES = _read_cases("gemma3_270m_q4_k_m.json")


def find_smollm2() -> Path:
    """The GGUF file; the tests never fetch it themselves."""
    return _find_gguf(SMOLLM2_FOLDER)


def find_gemma3() -> Path:
    """The same of the other model."""
    return _find_gguf(GEMMA3_FOLDER)


def _find_gguf(folder: Path) -> Path:
    found = sorted(folder.glob("*.gguf"))
    if not found:
        raise FileNotFoundError(f"no .gguf file in {folder}: run `make models` (sluicegate pull {folder.name})")
    return found[0]
