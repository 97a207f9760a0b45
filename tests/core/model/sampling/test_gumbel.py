"""The random draws: uniform, independent, and a function of seed, position and vocabulary index alone."""

import numpy as np
import torch
from torch import Tensor

from core.model.sampling.gumbel import _bits, _numpy_bits, _split_mix, draw_keys, gumbel_noise

VOCAB_SIZE = 49_152


def noise(seeds: list[int] | range, positions: list[int] | range, vocab_size: int = VOCAB_SIZE) -> Tensor:
    keys = draw_keys(np.array(seeds, np.uint64), np.array(positions, np.uint64))
    return gumbel_noise(torch.from_numpy(keys), torch.arange(vocab_size, dtype=torch.int32))


def uniform(gumbel: Tensor) -> Tensor:
    """What the Gumbel distribution function makes of its variables."""
    return (-(-gumbel.double()).exp()).exp()


def test_keys_are_made_by_the_published_splitmix64() -> None:
    """Its first output for the seed 1234567, as in Vigna's splitmix64.c."""
    assert int(_split_mix(np.array([1234567], np.uint64))[0]) == 6457827717110365317


def test_the_noise_never_changes() -> None:
    """Another release, process or machine gives a seed the tokens that this one gives it."""
    values = noise([7, 7, 8], [0, 1, 0])[:, [0, 1, 49_151]]
    expected = [[-1.331836, 1.213905, 0.35664], [0.176541, -0.091483, -0.893141], [0.447855, 0.740295, -0.317037]]
    torch.testing.assert_close(values, torch.tensor(expected), atol=1e-5, rtol=0)


def test_a_row_does_not_depend_on_the_others_nor_on_the_vocabulary() -> None:
    """Bit for bit."""
    together = noise(range(40), range(100, 140))
    for row in (0, 13, 39):
        assert torch.equal(noise([row], [100 + row])[0], together[row])
    assert torch.equal(noise([5], [105], 1000)[0], together[5, :1000])
    keys = torch.from_numpy(draw_keys(np.array([5, 6], np.uint64), np.array([105, 106], np.uint64)))
    few = torch.tensor([[9, 3], [0, 49_151]], dtype=torch.int32)
    assert torch.equal(gumbel_noise(keys, few), together[5:7].gather(1, few.long()))


def test_every_device_has_the_same_bits() -> None:
    """Those that torch makes, and those that numpy makes on a CPU."""
    keys, token_ids = draw_keys(np.arange(3, dtype=np.uint64), np.arange(5, 8, dtype=np.uint64)), np.arange(1000)
    on_cpu = _numpy_bits(keys.view(np.uint32), token_ids.astype(np.uint32))
    assert torch.equal(_bits(torch.from_numpy(keys), torch.arange(1000, dtype=torch.int32)), torch.from_numpy(on_cpu))
    assert (on_cpu >= 0).all()


def test_values_are_uniform_and_finite() -> None:
    """Kolmogorov-Smirnov over two million values, chi-squared over 256 buckets, and each end is reached."""
    values = uniform(noise(range(40), range(40))).flatten().sort().values
    steps = torch.arange(len(values), dtype=torch.float64) / len(values)
    assert (values - steps).abs().max() < 1.95 / len(values) ** 0.5
    counts = torch.histc(values, 256, 0, 1)
    expected = len(values) / 256
    assert abs(float(((counts - expected) ** 2 / expected).sum()) - 255) < 5 * (2 * 255) ** 0.5
    assert 0 < values[0] < 1e-5
    assert 1 - 1e-5 < values[-1] < 1


def test_neighbours_are_independent() -> None:
    """Next index, next position, next seed, and seeds that differ in one high bit only."""
    base = uniform(noise([3] * 20, range(20)))
    others = {
        "index": base.roll(1, -1),
        "position": uniform(noise([3] * 20, range(1, 21))),
        "seed": uniform(noise([4] * 20, range(20))),
        "high seed bit": uniform(noise([3 + (1 << 63)] * 20, range(20))),
        "swapped": uniform(noise(range(20), [3] * 20)).roll(1, 0),
    }
    for name, other in others.items():
        correlation = torch.corrcoef(torch.stack((base.flatten(), other.flatten())))[0, 1]
        assert abs(float(correlation)) < 5 / base.numel() ** 0.5, name


def check_frequencies(rows: Tensor, logits: Tensor) -> None:
    """Chi-squared of the draws against the softmax."""
    counts = torch.bincount((rows + logits).argmax(-1), minlength=len(logits))
    expected = logits.softmax(0) * len(rows)
    degrees = len(logits) - 1
    assert float(((counts - expected) ** 2 / expected).sum()) < degrees + 5 * (2 * degrees) ** 0.5


def test_draws_follow_the_softmax() -> None:
    """Over seeds at one position, and over the positions of one seed."""
    logits = torch.linspace(0, 4, 20)
    check_frequencies(noise(range(20_000), [9] * 20_000, 20), logits)
    check_frequencies(noise([9] * 20_000, range(20_000), 20), logits)
