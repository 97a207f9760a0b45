"""Log-probabilities as VllmEngine has them: parallel arrays, a position each."""

from collections.abc import Sequence
from itertools import islice

from smg_grpc_proto.generated import vllm_engine_pb2 as pb

from core.wire.messages import LogprobsLists, LogprobsTensors


def add_output_logprobs(message: pb.OutputLogProbs, logprobs: LogprobsLists, num_top: int) -> None:
    """Append the rows of ``logprobs``, with ``num_top`` alternatives each; below 0: all that are there."""
    message.token_ids.extend(logprobs.token_ids[:, 0].tolist())
    message.token_logprobs.extend(logprobs.logprobs[:, 0].tolist())
    if num_top:
        rows = zip(logprobs.token_ids.tolist(), logprobs.logprobs.tolist(), strict=True)
        message.top_logprobs.extend(_top_logprobs(ids, values, num_top) for ids, values in rows)


def input_logprobs(prompt_token_ids: Sequence[int], logprobs: LogprobsTensors, num_top: int) -> pb.InputLogProbs:
    """Of every token of the prompt. The first has no value: nothing predicts it."""
    values = logprobs.logprobs.array.tolist()
    message = pb.InputLogProbs(token_ids=prompt_token_ids, token_logprobs=[pb.InputTokenLogProb()])
    message.token_logprobs.extend(pb.InputTokenLogProb(value=row[0]) for row in values)
    if num_top:
        message.top_logprobs.add()
        rows = zip(logprobs.token_ids.array.tolist(), values, strict=True)
        message.top_logprobs.extend(_top_logprobs(ids, row, num_top) for ids, row in rows)
    return message


def _top_logprobs(ids: Sequence[int], values: Sequence[float], num_top: int) -> pb.TopLogProbs:
    """The token itself comes first, then the most likely ones, and nothing twice: vLLM keeps them as a dict."""
    entries = dict(zip(ids, values, strict=True))
    kept = list(islice(entries.items(), num_top if num_top > 0 else None))
    return pb.TopLogProbs(token_ids=[token_id for token_id, _ in kept], values=[value for _, value in kept])
