"""Rotary frequencies and rotation."""

import math

import torch

from core.model.architecture import Llama3Scaling, Rope
from core.model.decoder.rope import Rotation, rope_frequencies


def test_plain_and_linear_frequencies() -> None:
    """theta to the power of minus 2i/d, divided by the linear factor or by the file's own factors."""
    expected = torch.tensor([1.0, 0.1, 0.01, 0.001])
    torch.testing.assert_close(rope_frequencies(Rope(10_000.0), 8), expected)
    torch.testing.assert_close(rope_frequencies(Rope(10_000.0, linear_factor=4.0), 8), expected / 4)
    factors = torch.tensor([1.0, 2.0, 4.0, 8.0])
    torch.testing.assert_close(rope_frequencies(Rope(10_000.0), 8, factors), expected / factors)


def test_llama3_scaling_is_that_of_the_published_code() -> None:
    """Written as Meta writes it: by wavelength, with three cases."""
    scaling = Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_len=8192)
    plain = rope_frequencies(Rope(500_000.0), 128)
    expected = []
    for frequency in plain.tolist():
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            expected.append(frequency)
        elif wavelength > 8192 / 1:
            expected.append(frequency / 8)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            expected.append((1 - smooth) * frequency / 8 + smooth * frequency)
    assert len(set(map(round, (plain / torch.tensor(expected)).tolist()))) > 3
    torch.testing.assert_close(rope_frequencies(Rope(500_000.0, llama3=scaling), 128), torch.tensor(expected))


def test_rotation_turns_each_pair_by_its_angle() -> None:
    """Pairs are an element and the one half a head later; position 0 turns nothing."""
    frequencies = torch.tensor([0.5, 0.25])
    rotation = Rotation.of(torch.tensor([0, 3]), frequencies, torch.float32)
    heads = torch.randn(2, 5, 4)
    turned = rotation.apply(heads)
    torch.testing.assert_close(turned[0], heads[0])
    for pair, angle in ((0, 1.5), (1, 0.75)):
        x, y = heads[1, :, pair], heads[1, :, pair + 2]
        torch.testing.assert_close(turned[1, :, pair], x * math.cos(angle) - y * math.sin(angle))
        torch.testing.assert_close(turned[1, :, pair + 2], y * math.cos(angle) + x * math.sin(angle))
