"""min_p, top_k and top_p keep the tokens that their definitions keep."""

import pytest
import torch
from torch import Tensor

from core.model.truncation import mask_min_p, mask_top_k, mask_top_p


def kept(masked: Tensor) -> list[list[int]]:
    return [row.isfinite().nonzero()[:, 0].tolist() for row in masked]


def log(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def test_min_p_compares_with_the_best() -> None:
    """Per row; 0 keeps everything, 1 the best alone."""
    logits = log(0.5, 0.1, 0.3, 0.1).expand(4, -1)
    assert kept(mask_min_p(logits, torch.tensor([0.0, 0.19, 0.5, 1.0]))) == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2], [0]]


def test_top_k_keeps_ties() -> None:
    """Per row; 0 keeps everything; a tie with the last place stays, whichever a sort would put first."""
    logits = log(0.5, 0.1, 0.3, 0.1).expand(5, -1)
    assert kept(mask_top_k(logits, torch.tensor([0, 1, 2, 3, 4]))) == [
        [0, 1, 2, 3],
        [0],
        [0, 2],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    ]


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    """Per row; the token that crosses the bound stays, and ties with it; 1 keeps everything."""
    logits = log(0.5, 0.1, 0.3, 0.1).expand(6, -1)
    top_p = torch.tensor([1e-9, 0.49, 0.51, 0.79, 0.81, 1.0])
    assert kept(mask_top_p(logits, top_p)) == [[0], [0], [0, 2], [0, 2], [0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_top_p_agrees_with_a_full_sort(scale: float) -> None:
    """Flat distributions need all candidates, sharp ones a few; together or alone, a row keeps the same."""
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(1)) * scale
    top_p = torch.tensor([0.1, 0.5, 0.9, 0.99, 0.999, 1.0])
    masked = mask_top_p(logits, top_p)
    for row, p in enumerate(top_p):
        values, order = logits[row].double().softmax(0).sort(descending=True)
        before = values.cumsum(0) - values
        expected = order[before < p].sort().values
        got = masked[row].isfinite().nonzero()[:, 0]
        assert abs(len(got) - len(expected)) <= 1
        assert torch.equal(mask_top_p(logits[row : row + 1], p[None])[0], masked[row])


def test_masked_tokens_stay_masked() -> None:
    """Each step works on what the one before left."""
    logits = log(0.4, 0.3, 0.2, 0.1)[None].clone()
    logits[0, 0] = -torch.inf
    assert kept(mask_top_k(logits, torch.tensor([2]))) == [[1, 2]]
    assert kept(mask_top_p(logits, torch.tensor([0.6]))) == [[1, 2]]
    assert kept(mask_min_p(logits, torch.tensor([0.5]))) == [[1, 2]]
