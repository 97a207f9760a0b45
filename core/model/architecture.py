"""The numbers that describe a model, whatever file they come from."""

from dataclasses import dataclass

FAMILIES = ("llama", "qwen2")
"""What loads: Hugging Face's ``model_type``, which is also GGUF's ``general.architecture`` for these."""


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretching of the rotary frequencies; ``original_max_len`` is the context of the pretraining."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: base, linear scaling of the positions, and Llama 3.1's scaling."""

    theta: float = 10_000.0
    linear_factor: float = 1.0
    llama3: Llama3Scaling | None = None


@dataclass(frozen=True)
class ModelShape:
    """What KV cache, runner and scheduler must know of a model, whoever computes it.

    ``family`` is the Hugging Face ``model_type``; sizes are in elements, ``max_model_len`` in tokens. ``windows`` has,
    for each layer, how many tokens a token sees there, itself included; None = all before it.
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_kv_heads: int
    head_size: int
    max_model_len: int
    windows: tuple[int | None, ...]

    @property
    def kv_size(self) -> int:
        """Elements of one token's keys in one layer; its values take as many."""
        return self.num_kv_heads * self.head_size


@dataclass(frozen=True)
class Architecture(ModelShape):
    """All the numbers of a model that is computed here."""

    intermediate_size: int
    num_heads: int
    norm_eps: float
    rope: Rope

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_size
