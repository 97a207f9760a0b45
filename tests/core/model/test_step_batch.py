"""How one step's tokens are laid out."""

import torch

from core.model.attention.paged_kv_cache import PagedKVCache
from core.model.sampling.rows import Row
from core.model.span import Span
from core.model.step_batch import StepBatch
from tests.core.model.forward import make_request
from tests.core.model.tiny_model import TINY


def test_decodes_come_first_and_only_complete_requests_are_sampled() -> None:
    """Token ids, positions and rows."""
    cache = PagedKVCache(TINY, 64, 16, torch.device("cpu"), torch.float32)
    chunk = make_request([10, 11, 12, 13, 14], block_ids=[1])
    whole = make_request([20, 21, 22], block_ids=[2])
    long_decode = make_request(list(range(300)), 290, list(range(3, 22)))
    short_decode = make_request([30, 31], 1, [22])
    spans = [Span(chunk, 1, 3), Span(long_decode, 299, 1), Span(whole, 0, 3), Span(short_decode, 1, 1)]
    batch = StepBatch(spans, cache)
    assert [span.request for span in batch.spans] == [short_decode, long_decode, chunk, whole]
    assert batch.token_ids.tolist() == [31, 299, 11, 12, 13, 20, 21, 22]
    assert batch.positions.tolist() == [1, 299, 1, 2, 3, 0, 1, 2]
    assert batch.sampled == {0: Row(short_decode, 2), 1: Row(long_decode, 300), 7: Row(whole, 3)}
