"""What a step takes, by the sizes of a model."""

from core.model.architecture import ModelShape
from core.model.step_memory import largest_step_bytes, weight_bytes_to_come
from tests.core.model.tiny_model import TINY


def test_activations_and_logits() -> None:
    """Stream, norm, sum and more, 4 x 64; gate, up and their product, 4 x 96; six copies of 160 logits."""
    assert largest_step_bytes(TINY, 10, 0, 4) == 10 * (4 * 64 + 4 * 96) * 4
    assert largest_step_bytes(TINY, 0, 3, 2) == 3 * 160 * 4 * 6


def test_a_model_of_which_less_is_known() -> None:
    """A feed-forward four times as wide is assumed."""
    shape = ModelShape("any", 160, 64, 3, 2, 16, 512, (None,) * 3)
    assert largest_step_bytes(shape, 10, 0, 4) == 10 * (4 * 64 + 4 * 4 * 64) * 4


def test_weights_that_are_still_in_their_file() -> None:
    """All that is not in the process's own memory; oneDNN's further layouts where it has the weights."""
    assert weight_bytes_to_come(1000, 300, is_packed=False) == 700
    assert weight_bytes_to_come(1000, 3000, is_packed=False) == 0
    assert weight_bytes_to_come(1000, 3000, is_packed=True) == 1500
