"""How much memory the KV cache may take, by a rule with stated numbers."""

import msgspec

_CPU_PERCENT, _GPU_PERCENT = 50, 90
_CPU_MOST_BYTES = 4 << 30


class MemoryLeft(msgspec.Struct, frozen=True):
    """What an executor finds on its device once the model is loaded, in bytes.

        KV cache by default = ``percent`` of (free / sharing - weights - step) / (1 + 2 / layers), at most ``limit``

    A GPU is ours but for a tenth; of a host's memory half is left to others, and 4 GiB is the most that is taken
    unasked. The last divisor is for what attention copies of one layer, padded to twice its size at most.
    """

    free_bytes: int
    """To be had without swapping, within the limits of a container."""
    num_sharing: int
    """Executors that take their part of it."""
    weight_bytes: int
    """Of weights that come into memory, or are laid out anew, only when they are used."""
    step_bytes: int
    """Of the largest step's activations and logits."""
    num_layers: int
    """That have a place in a block."""
    percent: int = 100
    limit_bytes: int | None = None

    @classmethod
    def of(
        cls, on_gpu: bool, free_bytes: int, num_sharing: int, weight_bytes: int, step_bytes: int, num_layers: int
    ) -> "MemoryLeft":
        percent, limit = (_GPU_PERCENT, None) if on_gpu else (_CPU_PERCENT, _CPU_MOST_BYTES)
        return cls(free_bytes, num_sharing, weight_bytes, step_bytes, num_layers, percent, limit)

    def __str__(self) -> str:
        parts = [f"{_mib(self.free_bytes)} free"]
        if self.num_sharing > 1:
            parts.append(f"shared by {self.num_sharing}")
        parts += [f"{_mib(self.weight_bytes)} for weights to come", f"{_mib(self.step_bytes)} for a step"]
        limit = f", at most {_mib(self.limit_bytes)}" if self.limit_bytes is not None else ""
        return f"{', '.join(parts)}; by default {self.percent} % of the rest{limit}"

    @property
    def kv_cache_bytes(self) -> int:
        """Of a KV cache whose size nobody has said."""
        rest = self.free_bytes // self.num_sharing - self.weight_bytes - self.step_bytes
        part = rest * self.percent * self.num_layers // (100 * (self.num_layers + 2))
        return max(part if self.limit_bytes is None else min(part, self.limit_bytes), 0)

    @property
    def most_bytes(self) -> int:
        """A larger KV cache would have the process killed, though the system may promise the memory."""
        return max(self.free_bytes - self.weight_bytes - self.step_bytes, 0)


def _mib(num_bytes: int) -> str:
    return f"{num_bytes >> 20} MiB"
