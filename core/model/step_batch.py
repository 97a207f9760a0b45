"""One step's scheduled tokens as the flat tensors that the model reads."""

import itertools
from collections.abc import Iterable
from functools import cached_property

import numpy as np
import torch

from core.model.attention.backends import KVCache, MakeAttention, paged_attention
from core.model.prompt_rows import place_rows
from core.model.sampling.rows import Row
from core.model.span import Span


class StepBatch:
    """Single tokens first, in few groups; then the chunks of prompts. Within a group, an adapter's rows in a row.

    ``token_ids`` and ``positions`` int64 [tokens]; ``ends[i]`` is the row after the last of ``spans[i]``.
    """

    def __init__(self, spans: Iterable[Span], cache: KVCache, make_attention: MakeAttention = paged_attention) -> None:
        self.spans = sorted(spans, key=lambda span: (span.group_key, span.request.lora or 0))
        self.ends = list(itertools.accumulate(span.num_tokens for span in self.spans))
        self.token_ids = torch.from_numpy(
            np.concatenate([span.request.token_ids.array[span.start : span.stop] for span in self.spans])
        )
        offsets = np.array([span.stop - end for span, end in zip(self.spans, self.ends, strict=True)])
        positions = np.arange(self.ends[-1]) + offsets.repeat([span.num_tokens for span in self.spans])
        self.positions = torch.from_numpy(positions).to(cache.device)
        self.attention = make_attention(self.spans, cache)

    @cached_property
    def sampled(self) -> dict[int, Row]:
        """What chooses tokens, by the row it comes from: one for the request, before it one for each draft it has."""
        return {
            end - back: Row(span.request, span.stop + 1 - back)
            for span, end in zip(self.spans, self.ends, strict=True)
            if span.is_sampled
            for back in range(span.request.num_draft_tokens + 1, 0, -1)
        }

    def place_embeds(self, inputs: torch.Tensor) -> None:
        """Put the rows that requests brought into ``inputs`` [tokens, hidden_size], over their placeholders' own."""
        for span, end in zip(self.spans, self.ends, strict=True):
            if span.request.embeds is not None and span.start < span.request.num_prompt_tokens:
                place_rows(span.request.embeds, span.start, inputs[end - span.num_tokens : end])
