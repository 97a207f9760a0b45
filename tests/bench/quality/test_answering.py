"""A driver whose logits are its tokens, run as the real ones are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

TREE = Path(__file__).parents[3]
DRIVER = """
import numpy as np
from bench.quality.drivers.answering import answer

def logits(passes):
    print("libraries print")
    return np.array([[token_id] for of_pass in passes for token_id in of_pass], np.float32)

answer(logits)
"""


def test_logits_are_saved_where_they_are_wanted(tmp_path: Path) -> None:
    """One line for each window, whatever a library prints."""
    paths = [tmp_path / "first.npy", tmp_path / "second.npy"]
    asked = [json.dumps({"passes": [[1, 2], [3]], "path": str(path)}) for path in paths]
    done = subprocess.run(
        [sys.executable, "-c", DRIVER],
        input="\n".join(asked),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(TREE)},
    )
    assert done.stdout == "saved\nsaved\n"
    assert [np.load(path).tolist() for path in paths] == [[[1.0], [2.0], [3.0]]] * 2
