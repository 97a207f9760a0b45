"""Ours, in this process: the model as the engine core loads it, over a paged KV cache."""

from pathlib import Path

import torch

from bench.quality.window import Logits, Window
from core.config import ModelConfig
from core.executor.interface import NewRequest
from core.model.attention.kv_layout import KVLayout
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.registry import load_model
from core.model.request_state import RequestState
from core.model.span import Span
from core.model.step_batch import StepBatch
from core.wire.sampling_params import SamplingParams

_BLOCK_SIZE = 16


class Sluicegate:
    """With ``--quantization`` as given."""

    def __init__(self, model: Path, quantization: str, max_tokens: int) -> None:
        self._model = load_model(ModelConfig(model, quantization=quantization))
        a = self._model.architecture
        # Each group of layers has blocks of its own; block 0 is the null block.
        self._num_blocks = -(-max_tokens // _BLOCK_SIZE)
        self._num_groups = len(KVLayout(a.windows, a.max_model_len).windows)
        num_blocks = self._num_groups * self._num_blocks + 1
        self._cache = PagedKVCache(a, num_blocks, _BLOCK_SIZE, self._model.device, self._model.dtype)

    @torch.inference_mode()
    def logits(self, window: Window) -> Logits:
        request = self._request(window)
        spans = [Span(request, positions.start, len(positions)) for positions in window.passes()]
        return torch.cat([self._forward(span) for span in spans]).float().numpy()

    def _request(self, window: Window) -> RequestState:
        starts = [group * self._num_blocks + 1 for group in range(self._num_groups)]
        groups = [list(range(start, start + self._num_blocks)) for start in starts]
        tokens = [*window.token_ids]
        return RequestState(NewRequest("quality", tokens, len(tokens), SamplingParams(), 0, groups, 0))

    def _forward(self, span: Span) -> torch.Tensor:
        batch = StepBatch([span], self._cache)
        hidden = self._model.forward(self._model.embed(batch.token_ids), batch.positions, batch.attention)
        return self._model.logits(hidden)
