"""Several requests through steps whose tokens a test deals out, and their logits."""

import random
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from core.executor.interface import NewRequest
from core.model.attention.backends import find_backend
from core.model.attention.kv_layout import KVLayout
from core.model.model import Model
from core.model.request_state import RequestState
from core.model.span import Span
from core.model.step_batch import StepBatch
from core.prompt_embeds import PromptEmbeds
from core.wire.tensor import Tensor as WireTensor
from tests.core.model.driver import GREEDY
from tests.core.model.forward import spread_blocks


class Steps:
    """``prompts`` over one KV cache, whose blocks lie scattered, and hold NaN of a request that had them before.

    The inputs of prompts whose numbers are in ``spoiled`` are NaN, too.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[list[int]],
        block_size: int = 16,
        backend: str = "auto",
        spoiled: Sequence[int] = (),
    ) -> None:
        sizes = [-(-len(prompt) // block_size) for prompt in prompts]
        shape, found = model.architecture, find_backend(backend, model, block_size)
        self._model, self._attend = model, found.attend
        self._num_blocks = 1 + sum(sizes)
        self._num_groups = len(KVLayout(shape.windows, shape.max_model_len).windows)
        self.cache = found.make_cache(self._num_blocks * self._num_groups)
        free = list(range(1, self._num_blocks))
        former = self._request("former", [0] * len(free) * block_size, free, is_spoiled=True)
        self._forward([Span(former, 0, len(former.token_ids))])
        random.Random(0).shuffle(free)
        self._requests = [
            self._request(str(number), prompt, [free.pop() for _ in range(size)], number in spoiled)
            for number, (prompt, size) in enumerate(zip(prompts, sizes, strict=True))
        ]
        self._num_computed = [0] * len(prompts)
        self._logits: list[list[Tensor]] = [[] for _ in prompts]

    @property
    def left(self) -> dict[int, int]:
        """How many tokens are not computed yet, of prompts that have some, by their numbers."""
        counts = {number: len(request.token_ids) for number, request in enumerate(self._requests)}
        return {n: count - self._num_computed[n] for n, count in counts.items() if count > self._num_computed[n]}

    def step(self, counts: Mapping[int, int]) -> None:
        """The next so many tokens of each prompt, by its number."""
        spans = [Span(self._requests[number], self._num_computed[number], count) for number, count in counts.items()]
        for name, logits in self._forward(spans).items():
            self._logits[int(name)].append(logits)
        for number, count in counts.items():
            self._num_computed[number] += count

    def logits(self) -> list[Tensor]:
        """Of each prompt [tokens, vocab_size]."""
        return [torch.cat(parts) for parts in self._logits]

    def _request(self, name: str, token_ids: list[int], block_ids: list[int], is_spoiled: bool) -> RequestState:
        rows = np.full((len(token_ids), self._model.architecture.hidden_size), np.nan, np.float32)
        embeds = PromptEmbeds(WireTensor(rows), np.zeros(len(rows), np.bool_)) if is_spoiled else None
        tables = spread_blocks(block_ids, self._num_groups, self._num_blocks)
        return RequestState(NewRequest(name, token_ids, len(token_ids), GREEDY, 0, tables, 0, embeds))

    @torch.inference_mode()
    def _forward(self, spans: Sequence[Span]) -> dict[str, Tensor]:
        batch = StepBatch(spans, self.cache, self._attend)
        inputs = self._model.embed(batch.token_ids)
        batch.place_embeds(inputs)
        logits = self._model.logits(self._model.forward(inputs, batch.positions, batch.attention))
        ends = zip(batch.spans, batch.ends, strict=True)
        return {span.request.request_id: logits[end - span.num_tokens : end] for span, end in ends}
