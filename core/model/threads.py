"""How many threads torch uses."""

import torch

from core.model.host import available_cpus


def num_threads() -> int:
    """That a step runs on."""
    return torch.get_num_threads()


def use_available_cpus(num_sharing: int = 1) -> None:
    """As many as this process may use of the CPUs that ``num_sharing`` of its kind share, at least 1.

    torch's own default heeds OMP_NUM_THREADS and counts cores, but does not know the quota of a container.
    """
    torch.set_num_threads(max(1, min(torch.get_num_threads(), available_cpus() // num_sharing)))
