"""The words of ``bench.prompts`` as tokens, without a server."""

from pathlib import Path

from tokenizers import Tokenizer


class ModelTokenizer:
    """Of the model in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def tokenize(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
