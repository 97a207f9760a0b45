"""The core's settings: small frozen pieces, validated once; each class gets only its own."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.wire.kv_endpoint import endpoint_of_rank
from core.wire.sampling_params import MAX_LOGPROBS

SchedulingPolicy = Literal["fcfs", "priority"]
_MAX_SPECULATIVE_TOKENS = 32
"""Each of a batch's drafts has a row of logits, as wide as the vocabulary."""


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
    max_logprobs: int = MAX_LOGPROBS
    """Most log-probabilities that a request may ask for, -1 = those of the whole vocabulary."""
    tokenizer: Path | None = None
    """Folder with the model's tokenizer.json; None = where the model is."""
    preload_vocabulary: bool = False
    """Read it when the core starts, and not when the first request asks for structured output."""
    attention_backend: str = "auto"
    """Who computes attention: our own kernels, torch's own operations, or FlashAttention."""
    kernels: str = "auto"
    """Which of our own kernels compute on a CPU."""

    @property
    def tokenizer_folder(self) -> Path:
        return self.tokenizer or (self.path if self.path.is_dir() else self.path.parent)

    def served_len(self, limit: int) -> int:
        """``max_model_len``, or the model's own ``limit`` without one. Raises ValueError if it is beyond that."""
        if self.max_model_len is not None and not 1 <= self.max_model_len <= limit:
            raise ValueError(f"max_model_len must be in [1, {limit}], the model's own limit, got {self.max_model_len}")
        return self.max_model_len or limit


@dataclass(frozen=True)
class CacheConfig:
    """``kv_cache_memory_bytes`` None = what the executor says is available.

    Cores of one ``hash_seed`` have the same hashes for the same blocks; None = nobody else has them.
    """

    block_size: int = 16
    kv_cache_memory_bytes: int | None = None
    enable_prefix_caching: bool = True
    hash_seed: str | None = None

    def __post_init__(self) -> None:
        if self.block_size < 1:
            raise ValueError(f"block_size must be at least 1, got {self.block_size}")


@dataclass(frozen=True)
class SpeculationConfig:
    """Prompt lookup: draft what followed when the last tokens of a request occurred in it before.

    At most ``num_speculative_tokens`` in a step, 0 = none. ``prompt_lookup_max`` and ``prompt_lookup_min``: how many
    last tokens are looked for, at most, and must be found, at least.
    """

    num_speculative_tokens: int = 0
    prompt_lookup_max: int = 5
    prompt_lookup_min: int = 2

    def __post_init__(self) -> None:
        if not 0 <= self.num_speculative_tokens <= _MAX_SPECULATIVE_TOKENS:
            bound = f"[0, {_MAX_SPECULATIVE_TOKENS}]"
            raise ValueError(f"num_speculative_tokens must be in {bound}, got {self.num_speculative_tokens}")
        if self.prompt_lookup_min < 1:
            raise ValueError(f"prompt_lookup_min must be at least 1, got {self.prompt_lookup_min}")
        if self.prompt_lookup_max < self.prompt_lookup_min:
            bound = f"prompt_lookup_min ({self.prompt_lookup_min})"
            raise ValueError(f"prompt_lookup_max must be at least {bound}, got {self.prompt_lookup_max}")


@dataclass(frozen=True)
class SchedulerConfig:
    """Limits of one step: requests that run together, and tokens computed (prefill and decode share them).

    ``async_scheduling``: the next step is scheduled while one runs, as far as the executor can take it. It gains
    what a step takes beside the model, on two CPUs nothing to 8 %; newcomers wait for one step more.
    ``scheduling_policy``: ``fcfs``, first come, first served; ``priority``: by the requests' priorities, lower first.
    ``max_itl_stretch``: how much longer than without them those who decode may wait for a token while later prompts are
    computed beside them, 2 = twice as long; 0 = as long as a step of ``max_num_batched_tokens`` takes.
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    async_scheduling: bool = False
    scheduling_policy: SchedulingPolicy = "fcfs"
    speculation: SpeculationConfig = SpeculationConfig()
    max_itl_stretch: float = 2.5

    def __post_init__(self) -> None:
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs must be at least 1, got {self.max_num_seqs}")
        if self.max_num_batched_tokens < self.max_num_seqs:
            bound = f"max_num_seqs ({self.max_num_seqs})"
            raise ValueError(f"max_num_batched_tokens must be at least {bound}, got {self.max_num_batched_tokens}")
        if self.async_scheduling and self.speculation.num_speculative_tokens:
            reason = "a draft continues tokens that a step in flight has yet to give"
            raise ValueError(f"num_speculative_tokens must be 0 with async_scheduling: {reason}")
        if self.max_itl_stretch != 0 and not 1 < self.max_itl_stretch < math.inf:
            raise ValueError(f"max_itl_stretch must be 0 or more than 1, got {self.max_itl_stretch}")


_DEFAULT_MAX_IN_MEMORY = 16


@dataclass(frozen=True)
class LoraConfig:
    """Of adapters: ``max_loras`` that run in one step, ``max_cpu_loras`` in memory (None: 16, or more if more run).

    ``root``: the folder that they must be in; None = any.
    """

    max_loras: int = 4
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
    root: Path | None = None

    def __post_init__(self) -> None:
        for field in ("max_loras", "max_lora_rank"):
            if (value := getattr(self, field)) < 1:
                raise ValueError(f"{field} must be at least 1, got {value}")
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ValueError(f"max_cpu_loras must be at least max_loras ({self.max_loras}), got {self.max_cpu_loras}")

    @property
    def max_in_memory(self) -> int:
        return self.max_cpu_loras or max(self.max_loras, _DEFAULT_MAX_IN_MEMORY)

    def checked(self, path: str) -> str:
        """``path``, without links if there is a root. Raises ValueError for one that is not in it."""
        if self.root is None:
            return path
        try:
            resolved = Path(path).resolve()
        except RuntimeError as error:  # links that lead in a circle
            raise ValueError(f"must have a path that leads somewhere: {error}") from error
        if not resolved.is_relative_to(self.root.resolve()):
            raise ValueError(f"must have a path in {self.root}, which is --lora-root, got {path[:200]!r}")
        return str(resolved)


@dataclass(frozen=True)
class KVEventsConfig:
    """Where KV events are published. Endpoints are ``tcp://HOST:PORT``, ``ipc://PATH`` or ``inproc://NAME``.

    Raises ValueError for other ones. Cores of higher ``rank`` take higher ports, or names of their own.
    """

    endpoint: str
    topic: str = ""
    replay_endpoint: str | None = None
    rank: int = 0

    def __post_init__(self) -> None:
        for field in ("endpoint", "replay_endpoint"):
            if (value := getattr(self, field)) is not None:
                object.__setattr__(self, field, endpoint_of_rank(f"kv_events_{field}", value, self.rank))
