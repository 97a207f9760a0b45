"""The numbers that describe a model, whatever file they come from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's stretching of the rotary frequencies; ``original_max_len`` is the context of the pretraining."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_len: int


@dataclass(frozen=True)
class YarnScaling:
    """YaRN's stretching of the rotary frequencies, from ``original_max_len`` tokens to ``factor`` times as many.

    Those that turn more than ``beta_fast`` times in the original context stay, under ``beta_slow`` they are divided.
    ``attention_factor`` multiplies queries and keys; None = as much as the paper advises for ``factor``.
    """

    factor: float
    original_max_len: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: base, linear scaling of the positions, and at most one of the others' scalings."""

    theta: float = 10_000.0
    linear_factor: float = 1.0
    llama3: Llama3Scaling | None = None
    yarn: YarnScaling | None = None


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
    """All the numbers of a model that is computed here: ``ropes`` has one for each layer.

    ``attention_scale`` multiplies the scores, ``attention_softcap`` and ``logits_softcap`` bound scores and logits.
    """

    intermediate_size: int
    num_heads: int
    norm_eps: float
    ropes: tuple[Rope, ...]
    attention_scale: float
    attention_softcap: float | None = None
    logits_softcap: float | None = None

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_size
