"""min_p, top_k and top_p keep the tokens that their definitions keep."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from core.model.sampling.truncation import Truncation, candidate_sizes
from core.wire.sampling_params import SamplingParams


def kept(logits: Tensor, params: list[dict[str, Any]], size: int | None = None) -> list[list[int] | None]:
    """By row; None if there are more than the best ``size``."""
    truncation = Truncation.of([SamplingParams(**one) for one in params], torch.device("cpu"))
    found = truncation.find_candidates(logits, size or logits.shape[1])
    lines = zip(found.token_ids, found.logits, found.is_complete, strict=True)
    return [sorted(ids[values > -torch.inf].tolist()) if complete else None for ids, values, complete in lines]


def kept_by(logits: Tensor, field: str, *values: float) -> list[list[int] | None]:
    return kept(logits.expand(len(values), -1), [{field: value} for value in values])


def log(*probabilities: float) -> Tensor:
    return torch.tensor(probabilities).log()


def test_min_p_compares_with_the_best() -> None:
    """Per row; 0 keeps everything, 1 the best alone."""
    logits = log(0.5, 0.1, 0.3, 0.1)
    assert kept_by(logits, "min_p", 0.0, 0.19, 0.5, 1.0) == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2], [0]]


def test_top_k_keeps_ties() -> None:
    """Per row; 0 keeps everything; a tie with the last place stays, whichever a sort would put first."""
    logits = log(0.5, 0.1, 0.3, 0.1)
    every = [0, 1, 2, 3]
    assert kept_by(logits, "top_k", 0, -1, 1, 2, 3, 4, 2**31 - 1) == [every, every, [0], [0, 2], every, every, every]


def test_top_p_keeps_the_fewest_that_reach_it() -> None:
    """Per row; the token that crosses the bound stays, and ties with it; 1 keeps everything."""
    logits = log(0.5, 0.1, 0.3, 0.1)
    every = [0, 1, 2, 3]
    assert kept_by(logits, "top_p", 1e-9, 0.49, 0.51, 0.79, 0.81, 1.0) == [[0], [0], [0, 2], [0, 2], every, every]


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_top_p_agrees_with_a_full_sort(scale: float) -> None:
    """Flat distributions need all candidates, sharp ones a few; however many are looked at, a row keeps the same."""
    logits = torch.randn(6, 5000, generator=torch.Generator().manual_seed(1)) * scale
    asked = [{"top_p": p} for p in (0.1, 0.5, 0.9, 0.99, 0.999, 1.0)]
    found = kept(logits, asked)
    for row, one in enumerate(asked):
        values, order = logits[row].double().softmax(0).sort(descending=True)
        expected = order[values.cumsum(0) - values < one["top_p"]]
        assert abs(len(found[row] or ()) - len(expected)) <= 1
    for size in candidate_sizes(5000):
        of_size = kept(logits, asked, size)
        assert all(few in (None, every) for few, every in zip(of_size, found, strict=True))
        assert (scale < 8) or of_size[0] is not None


@pytest.mark.parametrize(
    ("params", "tokens"),
    [
        ({"min_p": 0.6, "top_k": 3, "top_p": 0.99}, [0, 1]),
        ({"min_p": 0.1, "top_k": 3, "top_p": 0.99}, [0, 1, 2]),
        ({"min_p": 0.1, "top_k": 3, "top_p": 0.7}, [0, 1]),
        ({"top_k": 2, "top_p": 0.56}, [0]),
        ({"top_k": 2, "top_p": 0.58}, [0, 1]),
        ({"top_p": 0.56}, [0, 1]),
    ],
)
def test_each_limit_works_on_what_the_one_before_left(params: dict[str, Any], tokens: list[int]) -> None:
    """So top_p reaches its sum sooner when top_k has taken the rest; 0.4 of 0.7 is 0.571."""
    assert kept(log(0.4, 0.3, 0.2, 0.1)[None], [params]) == [tokens]


@pytest.mark.parametrize("scale", [0.01, 1.0, 8.0])
def test_however_many_candidates_a_row_keeps_the_same(scale: float) -> None:
    """With every mix of the three limits, wider and narrower than what is looked at: all of it, or it says that not."""
    logits = torch.randn(5000, generator=torch.Generator().manual_seed(2)) * scale
    limits = {"min_p": (0.0, 1e-6, 0.1, 0.9), "top_k": (0, 1, 100, 300, 4000), "top_p": (0.05, 0.5, 0.99, 1.0)}
    asked = [dict(zip(limits, values, strict=True)) for values in itertools.product(*limits.values())]
    rows = logits.expand(len(asked), -1)
    every = kept(rows, asked)
    for size in candidate_sizes(5000):
        found = kept(rows, asked, size)
        wrong = [one for one, few, all_ in zip(asked, found, every, strict=True) if few not in (None, all_)]
        assert wrong == []
        needed = [
            one for one, few, all_ in zip(asked, found, every, strict=True) if few is None and len(all_ or ()) < 50
        ]
        assert [one for one in needed if one["top_k"] <= size and not one["min_p"]] == []


def test_masked_tokens_stay_masked() -> None:
    """What a processor has ruled out is in no one's sum."""
    logits = log(0.4, 0.3, 0.2, 0.1)[None].clone()
    logits[0, 0] = -torch.inf
    assert kept(logits, [{"top_k": 2}]) == kept(logits, [{"top_p": 0.6}]) == kept(logits, [{"min_p": 0.5}]) == [[1, 2]]


def test_ties_beyond_the_candidates_are_looked_for() -> None:
    """A row whose best tokens tie with others that were not looked at is not complete."""
    logits = torch.zeros(1, 300)
    assert kept(logits, [{"top_k": 5}], 128) == [None]
    assert kept(logits, [{"top_k": 5}]) == [list(range(300))]
