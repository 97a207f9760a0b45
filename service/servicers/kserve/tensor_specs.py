"""The tensors of Triton's vLLM backend: their names, types and shapes."""

from typing import NamedTuple


class TensorSpec(NamedTuple):
    """``size``: how many elements its one dimension has, -1 = any number."""

    name: str
    datatype: str
    size: int = 1
    optional: bool = True


TEXT_INPUT = TensorSpec("text_input", "BYTES", optional=False)
STREAM = TensorSpec("stream", "BOOL")
SAMPLING_PARAMETERS = TensorSpec("sampling_parameters", "BYTES")
EXCLUDE_INPUT = TensorSpec("exclude_input_in_output", "BOOL")
RETURN_FINISH_REASON = TensorSpec("return_finish_reason", "BOOL")
RETURN_CUMULATIVE_LOGPROB = TensorSpec("return_cumulative_logprob", "BOOL")
RETURN_LOGPROBS = TensorSpec("return_logprobs", "BOOL")
RETURN_NUM_INPUT_TOKENS = TensorSpec("return_num_input_tokens", "BOOL")
RETURN_NUM_OUTPUT_TOKENS = TensorSpec("return_num_output_tokens", "BOOL")
INPUTS = (
    TEXT_INPUT,
    STREAM,
    SAMPLING_PARAMETERS,
    EXCLUDE_INPUT,
    RETURN_FINISH_REASON,
    RETURN_CUMULATIVE_LOGPROB,
    RETURN_LOGPROBS,
    RETURN_NUM_INPUT_TOKENS,
    RETURN_NUM_OUTPUT_TOKENS,
)

TEXT_OUTPUT = TensorSpec("text_output", "BYTES", -1)
FINISH_REASON = TensorSpec("finish_reason", "BYTES", -1)
CUMULATIVE_LOGPROB = TensorSpec("cumulative_logprob", "FP32", -1)
LOGPROBS = TensorSpec("logprobs", "BYTES", -1)
NUM_INPUT_TOKENS = TensorSpec("num_input_tokens", "UINT32")
NUM_OUTPUT_TOKENS = TensorSpec("num_output_tokens", "UINT32", -1)
OUTPUTS = (TEXT_OUTPUT, FINISH_REASON, CUMULATIVE_LOGPROB, LOGPROBS, NUM_INPUT_TOKENS, NUM_OUTPUT_TOKENS)
OUTPUT_OF = {
    RETURN_FINISH_REASON: FINISH_REASON,
    RETURN_CUMULATIVE_LOGPROB: CUMULATIVE_LOGPROB,
    RETURN_LOGPROBS: LOGPROBS,
    RETURN_NUM_INPUT_TOKENS: NUM_INPUT_TOKENS,
    RETURN_NUM_OUTPUT_TOKENS: NUM_OUTPUT_TOKENS,
}
"""What each flag asks for. ``text_output`` is always there."""
