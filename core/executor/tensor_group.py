"""The ranks that share one model, over torch's gloo on the CPU and nccl on GPUs."""

import torch
from torch import Tensor

from core.executor.orders import Meeting
from core.executor.process_group import join_gloo, join_nccl, open_store

_NAME = "tensor-parallel"
COLLECTIVE_TIMEOUT_S = 300.0
"""A rank that is gone is noticed at once; this one is there and does not answer."""


class DistributedTensorGroup:
    """Fulfils ``core.model.tensor_group.TensorGroup``. Raises RuntimeError if a rank does not come in time."""

    def __init__(
        self,
        meeting: Meeting,
        rank: int,
        device: torch.device,
        listen_fd: int | None = None,
        own_host: str | None = None,
        timeout_s: float = COLLECTIVE_TIMEOUT_S,
    ) -> None:
        """``listen_fd``: rank 0's socket, where ``meeting`` is. ``own_host``: this host's address, if not that one."""
        self.rank, self.size = rank, meeting.size
        # On rank 0 it serves the others for as long as this object lives.
        self._store = open_store(meeting.host, meeting.port, rank, meeting.size, timeout_s, listen_fd, waits=False)
        if device.type == "cuda":
            self._group = join_nccl(self._store, _NAME, rank, meeting.size, timeout_s)
        else:
            self._group = join_gloo(self._store, _NAME, rank, meeting.size, timeout_s, own_host or meeting.host)
        self.all_reduce(torch.zeros(1, device=device))  # That they cannot reach each other shows now.

    def all_reduce(self, tensor: Tensor) -> None:
        self._group.allreduce([tensor]).wait()

    def all_gather(self, tensor: Tensor) -> Tensor:
        gathered = tensor.new_empty((self.size * len(tensor), *tensor.shape[1:]))
        self._group._allgather_base(gathered, tensor.contiguous()).wait()
        return gathered.view(self.size, *tensor.shape)
