"""The model being served, as far as the gateway must know it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from core.wire.messages import EngineReadyResponse, LoRARequest
from core.wire.sampling_params import MAX_LOGPROBS
from service.generation_config import GenerationConfig
from service.models import ModelFiles
from service.models.model_folder import holds_embedding_model, read_hidden_size, read_vocab_size
from service.text.tokenizer import Tokenizer

_MAX_EXCESS_TEXT_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class ModelText:
    """What the files of a model say of its text. ``vocab_size`` bounds token ids, ``hidden_size`` None = not said."""

    name: str
    tokenizer: Tokenizer
    generation_config: GenerationConfig
    vocab_size: int
    hidden_size: int | None = None
    embeds: bool = False
    """It makes vectors of texts, and no texts."""

    @classmethod
    def load(cls, files: ModelFiles) -> "ModelText":
        """Reads the tokenizer and configuration; no weights. Raises ModelError for files that are missing or broken."""
        folder = files.tokenizer_folder
        tokenizer = Tokenizer.load(folder)
        vocab_size = read_vocab_size(folder) or tokenizer.vocab_size
        generation_config = GenerationConfig.load(folder, vocab_size, tokenizer.eos_token_id)
        return cls(
            name=files.name,
            tokenizer=tokenizer,
            generation_config=generation_config,
            vocab_size=vocab_size,
            hidden_size=read_hidden_size(folder),
            embeds=holds_embedding_model(folder),
        )

    def served_by(
        self, engine: EngineReadyResponse, max_model_len: int | None = None, max_logprobs: int = MAX_LOGPROBS
    ) -> "ServedModel":
        """With the limits of ``engine`` and, if lower, ``max_model_len``."""
        longest = min(engine.max_model_len, max_model_len or engine.max_model_len)
        size = engine.data_parallel_size
        return ServedModel(**vars(self), max_model_len=longest, data_parallel_size=size, max_logprobs=max_logprobs)


@dataclass(frozen=True, kw_only=True)
class ServedModel(ModelText):
    """``max_model_len`` bounds prompt plus output, ``data_parallel_size`` ranks, ``max_logprobs`` what is told."""

    max_model_len: int
    data_parallel_size: int = 1
    max_logprobs: int = MAX_LOGPROBS
    adapters: Mapping[str, LoRARequest] = field(default_factory=dict)
    """Those that are loaded, by name; they come and go."""

    @property
    def max_text_bytes(self) -> int:
        """A longer text cannot fit, whatever its tokens are."""
        return self.max_model_len * self.tokenizer.longest_token_bytes

    @property
    def max_excess_text_bytes(self) -> int:
        """For a text that need not fit. Its tokens take 150 times the memory of its bytes while they are made."""
        return max(self.max_text_bytes, _MAX_EXCESS_TEXT_BYTES)
