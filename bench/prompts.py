"""Prompts of random words, as tokens: distinct, so that no prefix cache helps unless it is meant to."""

import random
from typing import Protocol

from bench.workload import Workload

_WORDS = """
able acid after again agree animal apple arrive autumn bread bridge bright brother butter camera carry castle chair
change city cloud coffee colour copper corner cotton country create dance danger decide desert dinner doctor dream
early earth engine evening family farmer feather field finger flower follow forest friend garden gentle glass gold
grain happy harbour heavy hidden honest horse hungry island jacket journey judge kettle kitchen ladder language laugh
lemon letter little machine market meadow middle mirror money morning mountain music narrow nature needle never noble
number ocean office orange paper pepper picture planet pocket polite potato quarter quiet rabbit reason river rocket
salad salt school season secret seven shadow silver simple singer smooth soldier spring square station stone story
street summer sugar sunday table teacher temple thunder ticket tiger tomato travel uncle under useful valley velvet
village violet visit walnut water weather window winter wonder worker yellow young
"""


class Tokenizer(Protocol):
    """A client of the server, or whoever else knows its tokens."""

    async def tokenize(self, text: str, *, add_special_tokens: bool) -> list[int]: ...


async def make_prompts(tokenizer: Tokenizer, workload: Workload, part: str) -> list[list[int]]:
    """``num_requests`` prompts of exactly ``prompt_tokens`` tokens; another ``part`` has others, but the shared prefix.

    The same seed and part give the same prompts.
    """
    own_tokens = workload.prompt_tokens - workload.shared_prefix_tokens
    prefix = await _random_tokens(tokenizer, random.Random(f"{workload.seed} prefix"), workload.shared_prefix_tokens)
    rng = random.Random(f"{workload.seed} {part}")
    return [prefix + await _random_tokens(tokenizer, rng, own_tokens) for _ in range(workload.num_requests)]


async def _random_tokens(tokenizer: Tokenizer, rng: random.Random, num_tokens: int) -> list[int]:
    # Every word is at least one token, so these are enough.
    text = "".join(f" {word}" for word in rng.choices(_WORDS.split(), k=num_tokens))
    return (await tokenizer.tokenize(text, add_special_tokens=False))[:num_tokens] if text else []
