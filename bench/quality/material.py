"""What the models are asked about: reference prompts with their answers, and a text."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from bench.quality.window import Window

TEXT_TOKENS = 4096
WINDOW_TOKENS = 512
_TOGETHER = 480
"""Of a window of the text; the others come one by one, so that the kernels for few rows have their part."""
_WIDE_MARGIN = 0.3
_TEXT = Path(__file__).parent / "text.txt"


def text_windows(model: Path) -> Iterator[Window]:
    """The first TEXT_TOKENS of the text, none of which knows what came before its window."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    token_ids = tokenizer.encode(_TEXT.read_text(encoding="utf-8"), add_special_tokens=False).ids[:TEXT_TOKENS]
    assert len(token_ids) == TEXT_TOKENS, "the text is long enough"
    for start in range(0, TEXT_TOKENS, WINDOW_TOKENS):
        yield Window(token_ids[start : start + WINDOW_TOKENS], _TOGETHER)


@dataclass(frozen=True)
class Answer:
    """A prompt and its greedy answer; ``decisive``: by row, the tokens of the answer that were chosen clearly."""

    window: Window
    decisive: dict[int, int]


def answers(reference: Path) -> Iterator[Answer]:
    """The prompt is computed in one pass, the answer token by token."""
    for case in json.loads(reference.read_text())["cases"]:
        prompt, greedy = case["prompt_token_ids"], case["greedy_token_ids"]
        margins = zip(greedy, case["top1_margin"], strict=True)
        rows = enumerate(margins, start=len(prompt) - 1)
        decisive = {row: token_id for row, (token_id, margin) in rows if margin > _WIDE_MARGIN}
        yield Answer(Window([*prompt, *greedy[:-1]], len(prompt)), decisive)
