"""Embedding models, through transformers' own definitions: encoders such as BERT, and decoders made to embed."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from core.config import ModelConfig
from core.embedding.encoder import EncoderInfo
from core.model.device import find_device
from core.model.dtypes import find_dtype
from core.model.embedding.pooling import read_pooling
from core.model.weights.weight_source import ModelLoadError

logger = logging.getLogger(__name__)

_POOLER = "pooler."
"""Weights of BERT's own head, which pooling does not use: checkpoints may lack them."""


class TextEncoder:
    """A sentence-transformers folder, loaded. Fulfils ``core.embedding.encoder.Encoder``."""

    def __init__(self, config: ModelConfig) -> None:
        """Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files."""
        self._device, dtype = find_device(config.device), find_dtype(config.dtype)
        self._pooling = read_pooling(config.path)
        started = time.monotonic()
        self._model = _load(config.path, dtype).to(self._device).eval()
        logger.info("loaded %s in %.1f s", type(self._model).__name__, time.monotonic() - started)
        self.info = EncoderInfo(
            max_model_len=_longest(self._model.config, self._pooling.max_tokens),
            vocab_size=self._model.config.vocab_size,
            size=self._model.config.hidden_size,
            dtype=str(dtype).removeprefix("torch."),
            is_normalized=self._pooling.is_normalized,
        )

    @torch.inference_mode()
    def encode(self, prompts: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors float32 [prompts, size]. Shorter prompts are padded at their end, which no token sees."""
        token_ids, mask = _padded(prompts)
        inputs = {"input_ids": token_ids.to(self._device), "attention_mask": mask.to(self._device)}
        hidden = self._model(**inputs, use_cache=False).last_hidden_state
        vectors: NDArray[np.float32] = self._pooling.pool(hidden.float(), inputs["attention_mask"]).cpu().numpy()
        return vectors


def _load(folder: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModel
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model, report = AutoModel.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, dtype=dtype, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        raise ModelLoadError(f"{folder}: transformers cannot load it: {error}") from error
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(_POOLER))
    if missing:
        raise ModelLoadError(f"{folder}: tensor {missing[0]} is missing ({len(missing)} in all)")
    if model.config.is_encoder_decoder:
        raise ModelLoadError(f"{folder}: encoder-decoder models such as {type(model).__name__} cannot be served")
    return model


def _longest(config: Any, max_tokens: int | None) -> int:
    """RoBERTa and its kin count positions from the padding's id on, so that the first ones are no token's."""
    num_positions: int = config.max_position_embeddings
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        num_positions -= config.pad_token_id + 1
    return min(num_positions, max_tokens or num_positions)


def _padded(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Token ids and mask int64 [prompts, longest]; padding is token 0 under a mask of 0."""
    lengths = np.array([len(prompt) for prompt in prompts])
    mask = np.arange(lengths.max()) < lengths[:, None]
    token_ids = np.zeros(mask.shape, np.int64)
    token_ids[mask] = np.concatenate([np.asarray(prompt, np.int64) for prompt in prompts])
    return torch.from_numpy(token_ids), torch.from_numpy(mask.astype(np.int64))
