"""Which layers share block tables, and where in a block each of them has its place.

A block holds the keys and values of some tokens in the layers of one group. All groups have as many layers as the kind
(seeing all, or through one window) that has the fewest, so that every block takes the same memory: 18 layers, of which
every sixth sees all, are six groups of three. Where the last group of a kind is short, a place in its blocks is unused;
a kind that has few more layers than another one wastes less if both take the size of the larger.
"""

from collections import defaultdict
from collections.abc import Sequence

_WORTH_PADDING = 1.5
"""Below this ratio of the largest kind to the smallest, every kind is one group, as in vLLM."""


class KVLayout:
    """``windows[g]``: how many last tokens a token sees in the layers of group g; None = all.

    ``groups[layer]`` and ``places[layer]``: the group a layer is in, and its number there, below ``group_size``.
    """

    def __init__(self, windows: Sequence[int | None], max_model_len: int) -> None:
        kinds = _kinds(windows, max_model_len)
        self.group_size = _group_size([len(layers) for layers in kinds.values()])
        self.windows: tuple[int | None, ...] = ()
        self.groups, self.places = [0] * len(windows), [0] * len(windows)
        for window, layers in kinds.items():
            for number, layer in enumerate(layers):
                self.groups[layer] = len(self.windows) + number // self.group_size
                self.places[layer] = number % self.group_size
            self.windows += (window,) * -(-len(layers) // self.group_size)

    def __repr__(self) -> str:
        return f"KVLayout({self.group_size} layers in each group, windows {self.windows})"


def _kinds(windows: Sequence[int | None], max_model_len: int) -> dict[int | None, list[int]]:
    """The layers of each kind. A window that no context outgrows is none."""
    kinds: dict[int | None, list[int]] = defaultdict(list)
    for layer, window in enumerate(windows):
        kinds[None if window is None or window >= max_model_len else window].append(layer)
    return kinds


def _group_size(sizes: Sequence[int]) -> int:
    smallest, largest = min(sizes), max(sizes)
    return largest if largest < smallest * _WORTH_PADDING else smallest
