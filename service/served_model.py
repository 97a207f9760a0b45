"""The model being served, as far as the gateway must know it."""

from dataclasses import dataclass

from service.generation_config import GenerationConfig
from service.models import ModelFiles
from service.models.model_folder import read_config
from service.tokenizer import Tokenizer


@dataclass(frozen=True)
class ServedModel:
    """``max_model_len`` bounds prompt plus output, ``vocab_size`` token ids, ``data_parallel_size`` ranks."""

    name: str
    tokenizer: Tokenizer
    generation_config: GenerationConfig
    max_model_len: int
    vocab_size: int
    data_parallel_size: int = 1

    @classmethod
    def load(cls, files: ModelFiles, max_model_len: int, data_parallel_size: int = 1) -> "ServedModel":
        """Reads the tokenizer and configuration; no weights. Raises ModelError for files that are missing or broken."""
        tokenizer = Tokenizer.load(files.tokenizer_folder)
        vocab_size = read_config(files.tokenizer_folder).get("vocab_size", tokenizer.vocab_size)
        generation_config = GenerationConfig.load(files.tokenizer_folder, vocab_size, tokenizer.eos_token_id)
        return cls(files.name, tokenizer, generation_config, max_model_len, vocab_size, data_parallel_size)
