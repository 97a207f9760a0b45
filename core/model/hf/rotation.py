"""Rotations that transformers changes with the longest text of a batch, settled when a model loads."""

import logging
from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from core.model.hf.probe import UnservableError

logger = logging.getLogger(__name__)

_CHANGING = "longrope"
_ORIGINAL = "original_max_position_embeddings"


def settle_rotation(model: Any, limit: int) -> None:
    """LongRoPE has two sets of frequencies, for texts up to the length of the pretraining and for longer ones.

    transformers takes the set for a whole batch, and turns what its cache holds by the one and new tokens by the other
    when a text grows over that length. Here, as in vLLM, all texts have the set of the longest that may come, which has
    ``limit`` tokens. Raises UnservableError where each kind of layer has rotations of its own.
    """
    modules = [module for module in model.modules() if _CHANGING in str(getattr(module, "rope_type", ""))]
    for module in modules:
        if module.rope_type != _CHANGING:
            raise UnservableError(f"its kinds of layers differ in rope_type: {module.rope_type}")
        if limit > (original := module.config.rope_parameters[_ORIGINAL]):
            _take_long_frequencies(module, original)
            logger.info("longrope: all texts are rotated as those of over %d tokens, as max_model_len allows", original)


def _take_long_frequencies(module: Any, original: int) -> None:
    frequencies, _ = ROPE_INIT_FUNCTIONS[_CHANGING](module.config, module.inv_freq.device, seq_len=original + 1)
    module.inv_freq.copy_(frequencies)
    module.original_inv_freq.copy_(frequencies)
