"""What the models are asked about."""

import json
from itertools import chain
from pathlib import Path

from bench.quality.material import TEXT_TOKENS, answers, text_windows
from bench.quality.window import Window
from tests.model_files import SMOLLM2_FOLDER


def test_the_text_is_long_enough() -> None:
    """And the same every time."""
    windows = [*text_windows(SMOLLM2_FOLDER)]
    assert sum(len(window.token_ids) for window in windows) == TEXT_TOKENS
    assert windows == [*text_windows(SMOLLM2_FOLDER)]


def test_passes_over_a_window() -> None:
    """Every token once, in order: some together, the others one by one."""
    passes = [*Window([5, 6, 7, 8, 9], 3).passes()]
    assert [len(positions) for positions in passes] == [3, 1, 1]
    assert [*chain(*passes)] == [0, 1, 2, 3, 4]


def test_the_rows_that_decide_about_an_answer(tmp_path: Path) -> None:
    """The row of the prompt's last token chooses the answer's first; the answer's last token decides nothing more."""
    case = {"prompt_token_ids": [1, 2], "greedy_token_ids": [3, 4, 5], "top1_margin": [0.5, 0.1, 2.0]}
    (tmp_path / "reference.json").write_text(json.dumps({"cases": [case]}))
    (answer,) = answers(tmp_path / "reference.json")
    assert answer.window == Window([1, 2, 3, 4], num_together=2)
    assert answer.decisive == {1: 3, 3: 5}
