"""A model's logits of one sequence, through the paged cache but without runner and sampler."""

import torch
from torch import Tensor

from core.executor.interface import NewRequest
from core.model.attention.kv_layout import KVLayout
from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.model import Model
from core.model.request_state import RequestState
from core.model.span import Span
from core.model.step_batch import StepBatch
from core.wire.sampling_params import SamplingParams


def make_request(
    token_ids: list[int] | None = None,
    num_prompt_tokens: int | None = None,
    block_ids: list[int] | None = None,
    seed: int = 0,
    request_id: str = "a",
    params: SamplingParams | None = None,
    num_groups: int = 1,
) -> RequestState:
    """Its blocks in the second group of layers are as many numbers on, and so forth."""
    token_ids = [0] if token_ids is None else token_ids
    num_prompt_tokens = len(token_ids) if num_prompt_tokens is None else num_prompt_tokens
    params = params or SamplingParams(temperature=0.0)
    tables = spread_blocks(block_ids or [], num_groups, len(block_ids or []))
    return RequestState(NewRequest(request_id, token_ids, num_prompt_tokens, params, seed, tables, 0))


def spread_blocks(block_ids: list[int], num_groups: int, distance: int) -> list[list[int]]:
    """By group of layers: those of each are ``distance`` numbers on from those of the one before."""
    return [[block_id + group * distance for block_id in block_ids] for group in range(num_groups)]


@torch.inference_mode()
def logits_of(model: Model, token_ids: list[int], chunk: int = 512) -> Tensor:
    """float32 [tokens, vocab_size], computed ``chunk`` tokens at a time in blocks that lie backwards."""
    num_blocks, layout = (
        -(-len(token_ids) // 16),
        KVLayout(model.architecture.windows, model.architecture.max_model_len),
    )
    num_groups = len(layout.windows)
    cache = PagedKVCache(model.architecture, 1 + num_blocks * num_groups, 16, model.device, model.dtype)
    request = make_request(token_ids, block_ids=list(range(num_blocks, 0, -1)), num_groups=num_groups)
    parts = []
    for start in range(0, len(token_ids), chunk):
        batch = StepBatch([Span(request, start, min(chunk, len(token_ids) - start))], cache)
        parts.append(model.logits(model.forward(model.embed(batch.token_ids), batch.positions, batch.attention)))
    return torch.cat(parts).float()
