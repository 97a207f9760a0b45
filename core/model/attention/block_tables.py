"""The block tables of a step's requests, as attention of any kind reads them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from core.model.span import Span

IntArray = NDArray[np.int64]


def pad_block_tables(spans: Sequence[Span], block_size: int, layer_group: int) -> IntArray:
    """[requests, blocks], as far as each span goes, padded with the null block."""
    num_blocks = [-(-span.stop // block_size) for span in spans]
    tables = np.zeros((len(spans), max(num_blocks)), np.int64)
    for table, span, length in zip(tables, spans, num_blocks, strict=True):
        table[:length] = span.request.block_tables[layer_group].array[:length]
    return tables
