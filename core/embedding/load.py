"""From the folder of an embedding model to its engine."""

import logging
from pathlib import Path

from core.config import ModelConfig, SchedulerConfig
from core.embedding.engine import EmbeddingEngine
from core.model.embedding.pooling import MODULES_FILE
from core.model.embedding.text_encoder import TextEncoder
from core.model.linear import QUANTIZATIONS
from core.model.threads import num_threads, use_available_cpus

logger = logging.getLogger(__name__)


def holds_embedding_model(path: Path) -> bool:
    """Whether ``path`` is a folder of sentence-transformers."""
    return (path / MODULES_FILE).is_file()


def load_embedding_engine(model: ModelConfig, scheduler: SchedulerConfig) -> EmbeddingEngine:
    """Raises ValueError for a setting that is not allowed, ModelLoadError for what is wrong with the files."""
    if model.quantization not in QUANTIZATIONS:
        raise ValueError(f"quantization must be one of {', '.join(QUANTIZATIONS)}, got {model.quantization!r}")
    use_available_cpus(model.num_cores_here)
    encoder = TextEncoder(model)
    engine = EmbeddingEngine(encoder, scheduler, model.served_len(encoder.info.max_model_len))
    logger.info(
        "the engine embeds: %d elements, %s; %s on %s, %d threads; max_model_len %d, max_num_seqs %d, "
        "max_num_batched_tokens %d",
        *(encoder.info.size, "normalized" if encoder.info.is_normalized else "as they are"),
        *(encoder.info.dtype, model.device, num_threads(), engine.ready_response.max_model_len),
        *(scheduler.max_num_seqs, scheduler.max_num_batched_tokens),
    )
    return engine
