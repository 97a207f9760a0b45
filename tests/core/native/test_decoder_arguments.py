"""What a decoder and its cache cannot compute is refused: nothing is read or written beyond its memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from core.native.kernels import Decoder, Kernels, Linear, PagedCache
from tests.core.native.quantized_product import make_linear

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, NUM_BLOCKS = 64, 96, 2, 1, 32, 16, 3
CACHE_SIZE = NUM_BLOCKS * BLOCK_SIZE * KV_HEADS * HEAD_SIZE


def ones(*shape: int) -> NDArray[np.float32]:
    return np.ones(shape, np.float32)


def linear(kernels: Kernels, num_outputs: int, num_inputs: int) -> Linear:
    return make_linear(kernels, ones(num_outputs, num_inputs))


def layer_parts(kernels: Kernels) -> dict[str, Any]:
    return {
        "attention_norm": ones(HIDDEN),
        "head_norm": None,
        "attended_norm": None,
        "feed_forward_norm": ones(HIDDEN),
        "fed_norm": None,
        "qkv": linear(kernels, (HEADS + 2 * KV_HEADS) * HEAD_SIZE, HIDDEN),
        "output": linear(kernels, HIDDEN, HEADS * HEAD_SIZE),
        "gate_up": linear(kernels, 2 * INTERMEDIATE, HIDDEN),
        "down": linear(kernels, HIDDEN, INTERMEDIATE),
        "scale": 1.0,
        "softcap": 0.0,
        "window": 0,
        "rotation": 0,
    }


def make_decoder(kernels: Kernels, layer: dict[str, Any] | None = None, **changes: Any) -> Decoder:
    """Of one layer, with what of it is to be another."""
    parts = {
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "head_size": HEAD_SIZE,
        "norm_eps": 1e-5,
        "uses_gelu": False,
        "rotations": [(ones(HEAD_SIZE // 2), 1.0)],
        "layers": [kernels.Layer(**layer_parts(kernels) | (layer or {}))],
        "norm": ones(HIDDEN),
    }
    return kernels.Decoder(**parts | changes)


def make_cache(kernels: Kernels, num_layers: int = 1, group: int = 0) -> PagedCache:
    keys, values = ([np.zeros(CACHE_SIZE, np.float32) for _ in range(num_layers)] for _ in range(2))
    return kernels.PagedCache(keys, values, [group] * num_layers, BLOCK_SIZE)


def spans(*rows_and_starts: tuple[int, int]) -> NDArray[np.int32]:
    return np.array(rows_and_starts, np.int32).reshape(-1, 2)


def tables(*blocks: list[int]) -> NDArray[np.int32]:
    return np.array(blocks, np.int32)


def test_what_fits_is_computed(kernels: Kernels) -> None:
    """Up to the last position that the block table has; and no rows are none."""
    decoder, cache, hidden = make_decoder(kernels), make_cache(kernels), ones(2, HIDDEN)
    decoder.forward(hidden, spans((2, 30)), [tables([1, 2])], cache)
    assert np.isfinite(hidden).all()
    decoder.forward(ones(0, HIDDEN), spans(), [np.zeros((0, 1), np.int32)], cache)


@pytest.mark.parametrize(
    ("hidden", "of_spans", "of_tables", "message"),
    [
        (ones(2, HIDDEN - 16), spans((2, 0)), [tables([1])], "hidden"),
        (ones(HIDDEN), spans((1, 0)), [tables([1])], "hidden"),
        (ones(2, HIDDEN), spans((1, 0)), [tables([1])], "all rows"),
        (ones(2, HIDDEN), spans((3, 0), (-1, 0)), [tables([1], [2])], "must have rows"),
        (ones(2, HIDDEN), spans((2, 0), (0, 0)), [tables([1], [2])], "must have rows"),
        (ones(2, HIDDEN), spans((2, -1)), [tables([1])], "must have rows"),
        (ones(2, HIDDEN), spans((2, 15)), [tables([1])], "a block for each position"),
        (ones(2, HIDDEN), spans((2, 2**31 - 1)), [tables([1])], "a block for each position"),
        (ones(2, HIDDEN), spans((2, 0)), [tables([1], [2])], "a row for each span"),
        (ones(2, HIDDEN), spans((2, 0)), [], "every group"),
    ],
)
def test_steps_that_do_not_fit(
    kernels: Kernels,
    hidden: NDArray[np.float32],
    of_spans: NDArray[np.int32],
    of_tables: list[NDArray[np.int32]],
    message: str,
) -> None:
    """Rows, spans and tables that say different things."""
    with pytest.raises(ValueError, match=message):
        make_decoder(kernels).forward(hidden, of_spans, of_tables, make_cache(kernels))


def test_caches_that_do_not_fit(kernels: Kernels) -> None:
    """Of other layers; of arrays of two kinds, of which one would be copied; of none."""
    with pytest.raises(ValueError, match="the decoder's layers"):
        make_decoder(kernels).forward(ones(1, HIDDEN), spans((1, 0)), [tables([1])], make_cache(kernels, 2))
    with pytest.raises(ValueError, match="every group"):
        make_decoder(kernels).forward(ones(1, HIDDEN), spans((1, 0)), [tables([1])], make_cache(kernels, group=1))
    of_halves, of_floats = np.zeros(CACHE_SIZE, np.uint16), np.zeros(CACHE_SIZE, np.float32)
    for keys, values in (
        ([of_halves], [of_floats]),
        ([of_floats, of_halves], [of_floats, of_floats]),
        ([of_floats], [of_floats.reshape(2, -1).T]),
        ([of_floats], [None]),
    ):
        with pytest.raises(TypeError, match="all be float32, or all uint16"):
            kernels.PagedCache(keys, values, [0] * len(keys), BLOCK_SIZE)
    with pytest.raises(ValueError, match="one for each layer"):
        kernels.PagedCache([], [], [], BLOCK_SIZE)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda _: {"attention_norm": None}, "a norm"),
        (lambda _: {"feed_forward_norm": ones(HIDDEN - 1)}, "a norm"),
        (lambda _: {"head_norm": ones(HEADS, HEAD_SIZE)}, "a norm"),
        (lambda _: {"attended_norm": ones(1)}, "a norm"),
        (lambda _: {"fed_norm": ones(1)}, "a norm"),
        (lambda _: {"qkv": None}, "a linear"),
        (lambda kernels: {"qkv": linear(kernels, HIDDEN, HIDDEN)}, "a linear"),
        (lambda kernels: {"output": linear(kernels, HIDDEN, HIDDEN + 32)}, "a linear"),
        (lambda kernels: {"gate_up": linear(kernels, INTERMEDIATE, HIDDEN)}, "a linear"),
        (lambda kernels: {"down": linear(kernels, HIDDEN, HIDDEN)}, "a linear"),
        (lambda _: {"rotation": 1}, "rotation"),
        (lambda _: {"rotation": -1}, "rotation"),
        (lambda _: {"window": -1}, "window"),
    ],
)
def test_layers_that_do_not_fit(kernels: Kernels, layer: Callable[[Kernels], dict[str, Any]], message: str) -> None:
    """Each part has the sizes that the decoder has."""
    with pytest.raises(ValueError, match=message):
        make_decoder(kernels, layer(kernels))


def test_decoders_that_do_not_fit(kernels: Kernels) -> None:
    """Sizes that are no whole registers, heads that cannot be shared out, vectors that are too short."""
    for change in (
        {"hidden_size": 0},
        {"intermediate_size": 100},
        {"head_size": 48},
        {"num_kv_heads": 0},
        {"num_heads": 3, "num_kv_heads": 2},
        {"rotations": [(ones(HEAD_SIZE // 2 - 1), 1.0)]},
        {"norm": ones(HIDDEN - 1)},
    ):
        with pytest.raises(ValueError, match=r"must be|shape"):
            make_decoder(kernels, **change)
