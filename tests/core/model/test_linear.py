"""Linear layers give torch's own result."""

import pytest
import torch
from torch.nn import functional

from core.model.linear import DenseLinear, PackedLinear, make_linear


@pytest.mark.parametrize("num_rows", [1, 2, 7, 32, 130])
@pytest.mark.parametrize("has_bias", [False, True])
def test_packed_weights_give_the_same_products(num_rows: int, has_bias: bool) -> None:
    """For every number of rows, although the weight was packed without knowing it; with and without bias."""
    weight, bias = torch.randn(96, 64), torch.randn(96) if has_bias else None
    rows = torch.randn(num_rows, 64)
    linear = make_linear(weight, bias)
    assert isinstance(linear, PackedLinear)
    torch.testing.assert_close(linear(rows), functional.linear(rows, weight, bias), atol=1e-4, rtol=1e-4)


def test_other_dtypes_are_left_to_torch() -> None:
    """oneDNN's layout is for float32."""
    weight, rows = torch.randn(96, 64, dtype=torch.bfloat16), torch.randn(3, 64, dtype=torch.bfloat16)
    linear = make_linear(weight)
    assert isinstance(linear, DenseLinear)
    assert torch.equal(linear(rows), functional.linear(rows, weight))


def test_a_row_of_nan_stays_in_its_row() -> None:
    """One request's bad values do not reach its neighbours."""
    weight, rows = torch.randn(96, 64), torch.randn(16, 64)
    expected = make_linear(weight)(rows)
    rows[5] = torch.nan
    result = make_linear(weight)(rows)
    others = [row for row in range(16) if row != 5]
    assert torch.equal(result[others], expected[others])
    assert result[5].isnan().all()
