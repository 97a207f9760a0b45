"""The core's settings: small frozen pieces, validated once; each class gets only its own."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModelConfig:
    """Which model and how to run it. ``path`` is a ``.gguf`` file or a folder with a GGUF or safetensors."""

    path: Path
    dtype: str = "auto"
    quantization: str = "auto"
    device: str = "cpu"
    max_model_len: int | None = None
    """Longest prompt plus output, in tokens; None = the model's own limit, which it may not exceed."""
    seed: int = 0
    """Mixed into the draws of requests that bring no seed of their own."""
    num_cores_here: int = 1
    """Cores that share this host, this one included."""


@dataclass(frozen=True)
class CacheConfig:
    """``kv_cache_memory_bytes`` None = what the executor says is available."""

    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    enable_prefix_caching: bool = True

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {self.block_size}")


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits of one step: requests that run together, and tokens computed (prefill and decode share them)."""

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs must be at least 1, got {self.max_num_seqs}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            bound = f"max_num_seqs ({self.max_num_seqs})"
            raise ValueError(f"max_num_batched_tokens must be at least {bound}, got {self.max_num_batched_tokens}")
