"""What ranks compute together."""

import pytest
import torch
from torch import Tensor

from core.executor.orders import Meeting
from core.executor.tensor_group import DistributedTensorGroup
from tests.core.executor.rank_threads import on_each_rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [2, 3])
def test_sums_are_the_same_bits_on_every_rank(size: int, dtype: torch.dtype) -> None:
    """Of odd shapes, in every dtype that a model may have."""
    parts = [torch.randn(7, 33, generator=torch.Generator().manual_seed(rank)).to(dtype) for rank in range(size)]

    def add(group: DistributedTensorGroup) -> Tensor:
        tensor = parts[group.rank].clone()
        group.all_reduce(tensor)
        return tensor

    first, *others = on_each_rank(size, add)
    torch.testing.assert_close(first, torch.stack(parts).sum(0), atol=0.05, rtol=0.02)
    assert all(torch.equal(first, other) for other in others)


def test_what_all_have_is_gathered_in_their_order() -> None:
    """Also of a tensor that does not lie in one piece."""
    gathered = on_each_rank(3, lambda group: group.all_gather(torch.full((5, 2), group.rank).T))
    for tensor in gathered:
        assert tensor.shape == (3, 2, 5)
        assert tensor[:, 0, 0].tolist() == [0, 1, 2]


def test_a_rank_that_does_not_come_is_not_waited_for() -> None:
    """Longer than it may take: rank 0 makes a call that rank 1 does not make, though it is there."""

    def call_on_rank_0(group: DistributedTensorGroup) -> DistributedTensorGroup:
        if group.rank == 0:
            with pytest.raises(RuntimeError, match="Timed out waiting 1000ms"):
                group.all_reduce(torch.zeros(1))
        return group

    assert len(on_each_rank(2, call_on_rank_0, timeout_s=1.0)) == 2


def test_nobody_to_meet() -> None:
    """Where nobody listens, or the others stay away."""
    with pytest.raises(RuntimeError):
        DistributedTensorGroup(Meeting("127.0.0.1", 1, 2), 1, torch.device("cpu"), timeout_s=0.1)
