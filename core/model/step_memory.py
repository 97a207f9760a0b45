"""What a model takes beside weights and KV cache, estimated from its sizes."""

from core.model.architecture import Architecture, ModelShape

_LOGITS_COPIES = 6
"""Of float32, while the sampler sorts them and takes log-probabilities; measured with everything asked for at once."""


def largest_step_bytes(shape: ModelShape, num_tokens: int, num_logits: int, element_bytes: int) -> int:
    """Activations of ``num_tokens``, and ``num_logits`` rows of logits.

    At its widest a layer has the stream, its norm and sum, and either gate and up with their product, or queries, keys
    and values beside their rotated copies.
    """
    intermediate_size, query_size = 4 * shape.hidden_size, shape.hidden_size
    if isinstance(shape, Architecture):
        intermediate_size, query_size = shape.intermediate_size, shape.query_size
    widest = 4 * shape.hidden_size + max(4 * intermediate_size, 2 * (query_size + 2 * shape.kv_size) + query_size)
    return num_tokens * widest * element_bytes + num_logits * shape.vocab_size * 4 * _LOGITS_COPIES


def weight_bytes_to_come(num_weight_bytes: int, resident_bytes: int, is_packed: bool) -> int:
    """What using the weights adds to what loading them took.

    Those that are read from a mapped file are no memory of this process (``resident_bytes``) yet. oneDNN, which has the
    float32 ones of a CPU, keeps further layouts for steps of other sizes: 1.4 times the weights with SmolLM2, all told.
    """
    if is_packed:
        return num_weight_bytes * 3 // 2
    return max(num_weight_bytes - resident_bytes, 0)
