"""The sampler again, one row at a time and as literal as its definitions."""

import numpy as np
import torch
from numpy.typing import NDArray

from core.model.request_state import RequestState
from core.model.sampling.gumbel import draw_keys, gumbel_noise
from core.wire.sampling_params import SamplingParams

Row = NDArray[np.float32]


def choose(logits: Row, request: RequestState) -> int | None:
    """The token of one row; None if its parameters leave none."""
    logits = change(logits.copy(), request)
    if logits.max() == -np.inf:
        return None
    params = request.sampling_params
    if params.is_greedy:
        return int(logits.argmax())
    logits = truncate(logits / np.float32(max(params.temperature, 0.01)), params)
    position = len(request.token_ids)
    keys = draw_keys(np.array([request.seed % 2**64], np.uint64), np.array([position], np.uint64))
    noise = gumbel_noise(torch.from_numpy(keys), torch.arange(len(logits), dtype=torch.int32))[0].numpy()
    return int((logits + noise).argmax())


def change(logits: Row, request: RequestState) -> Row:
    """Masks, bias and penalties, in order."""
    params, output = request.sampling_params, request.output_token_ids.tolist()
    logits[masked_tokens(params, output, len(logits))] = -np.inf
    for token, bias in (params.logit_bias or {}).items():
        logits[token] += np.float32(bias)
    for token in set(request.token_ids.array.tolist()):
        factor = np.float32(params.repetition_penalty)
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token in set(output):
        logits[token] -= np.float32(params.frequency_penalty * output.count(token) + params.presence_penalty)
    return logits


def masked_tokens(params: SamplingParams, output: list[int], vocab_size: int) -> list[int]:
    """By allowed tokens, bad words and min_tokens."""
    masked = set(range(vocab_size)) - set(params.allowed_token_ids or range(vocab_size))
    masked |= {word[-1] for word in params.bad_words_token_ids or [] if [*output, word[-1]][-len(word) :] == word}
    if len(output) < params.min_tokens:
        eos = [] if params.eos_token_id is None else [params.eos_token_id]
        masked |= {*eos, *params.all_stop_token_ids, *(params.stop_token_ids or [])}
    return sorted(masked)


def truncate(logits: Row, params: SamplingParams) -> Row:
    """min_p, top_k, top_p, in order."""
    with np.errstate(divide="ignore"):
        logits = np.where(logits < logits.max() + np.log(np.float32(params.min_p)), -np.inf, logits)
    if params.top_k > 0:
        logits = np.where(logits < np.sort(logits)[-min(params.top_k, len(logits))], -np.inf, logits)
    if params.top_p < 1:
        order = np.argsort(-logits)
        probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        total = 0.0
        for place, token in enumerate(order):
            total += probabilities[token]
            if total >= params.top_p:
                return np.where(logits < logits[order[place]], -np.inf, logits)
    return logits
