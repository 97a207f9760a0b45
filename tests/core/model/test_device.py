"""Where a model may run."""

import psutil
import pytest
import torch

from core.model.device import find_device, free_memory_bytes


def test_a_gpu_that_is_not_there_is_told() -> None:
    """With those that are."""
    num_gpus = torch.cuda.device_count()
    why = "" if num_gpus else r" \(torch \S+ sees no GPU\)"
    with pytest.raises(ValueError, match=rf"device must be one of cpu.*{why}, got 'cuda:{num_gpus}'"):
        find_device(f"cuda:{num_gpus}")


def test_the_cpu_has_the_memory_of_the_host() -> None:
    """As far as it is free."""
    assert free_memory_bytes(find_device("cpu")) == pytest.approx(psutil.virtual_memory().available, rel=0.2)
