"""How many threads torch uses."""

import torch

from core.model.host import available_cpus


def use_available_cpus() -> None:
    """torch's own default heeds OMP_NUM_THREADS and counts cores, but does not know the quota of a container."""
    torch.set_num_threads(min(torch.get_num_threads(), available_cpus()))
