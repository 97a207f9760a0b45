"""What choosing tokens costs beside the model: `python -m bench.sampling`, CPU milliseconds per step on one thread.

Random logits of SmolLM2's vocabulary, a batch in which every request asks for the same; each step chooses a token for
every one. "churn" replaces one request of the batch before every step.
"""

import time
from typing import Any

import torch

from core.executor.interface import NewRequest
from core.model.request_state import RequestState
from core.model.sampling.logits_processors import TokenMask
from core.model.sampling.rows import Row
from core.model.sampling.sampler import Sampler
from core.wire.sampling_params import SamplingParams

_VOCAB_SIZE = 49_152
_BATCH_SIZE = 32
_PROMPT = list(range(500))
_NUM_STEPS = 12
_PENALTIES: dict[str, Any] = {"repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": 0.5}
_MASKS: dict[str, Any] = {
    "min_tokens": 100,
    "eos_token_id": 2,
    "logit_bias": dict.fromkeys(range(100, 140), 1.0),
    "bad_words_token_ids": [[i, i + 1] for i in range(100)] + [[i] for i in range(100)],
}
_TRUNCATION: dict[str, Any] = {"top_k": 50, "top_p": 0.9, "min_p": 0.01}
_CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "greedy, logprobs 5": {"temperature": 0.0, "logprobs": 5},
    "greedy, all logprobs": {"temperature": 0.0, "logprobs": -1},
    "greedy, penalties": {"temperature": 0.0, **_PENALTIES},
    "greedy, bias, bad words, min_tokens": {"temperature": 0.0, **_MASKS},
    "greedy, half of the tokens allowed": {"temperature": 0.0, "allowed_token_ids": list(range(0, _VOCAB_SIZE, 2))},
    "temperature": {"temperature": 0.8},
    "temperature, top_p": {"temperature": 0.8, "top_p": 0.9},
    "temperature, top_k": {"temperature": 0.8, "top_k": 50},
    "temperature, top_k, top_p, min_p": {"temperature": 0.8, **_TRUNCATION},
    "everything": {
        "temperature": 0.8,
        "logprobs": 5,
        "allowed_token_ids": list(range(0, _VOCAB_SIZE, 2)),
        **_PENALTIES,
        **_MASKS,
        **_TRUNCATION,
    },
}


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'batch of ' + str(_BATCH_SIZE):40}{'steady':>10}{'churn':>10}   ms of CPU per step")
    for name, params in _CASES.items():
        _show(name, SamplingParams(**params))
    bits = torch.randint(-(2**31), 2**31, (_BATCH_SIZE, _VOCAB_SIZE // 32), dtype=torch.int32)
    _show("greedy, a grammar's mask", SamplingParams(temperature=0.0), TokenMask(range(_BATCH_SIZE), bits))


def _show(name: str, params: SamplingParams, mask: TokenMask | None = None) -> None:
    steady, churn = (_measure(params, num_replaced, mask) for num_replaced in (0, 1))
    print(f"{name:40}{steady:10.2f}{churn:10.2f}")


def _measure(params: SamplingParams, num_replaced: int, mask: TokenMask | None) -> float:
    """The least of several steps: what else runs on the machine only adds."""
    sampler, requests = Sampler(), [_request(index, params) for index in range(_BATCH_SIZE)]
    logits = torch.randn(_BATCH_SIZE, _VOCAB_SIZE, generator=torch.Generator().manual_seed(0)) * 3
    times = []
    for step in range(_NUM_STEPS):
        for place in range(num_replaced):
            requests[(step + place) % _BATCH_SIZE] = _request(_BATCH_SIZE + step, params)
        rows, own = [Row(request, len(request.token_ids)) for request in requests], logits.clone()
        started = time.process_time()
        token_ids = sampler.sample(own, rows, mask).token_ids
        times.append((time.process_time() - started) * 1e3)
        for request, token_id in zip(requests, token_ids, strict=True):
            request.token_ids.extend([token_id])
    return min(times[2:])


def _request(index: int, params: SamplingParams) -> RequestState:
    return RequestState(NewRequest(str(index), _PROMPT, len(_PROMPT), params, index, [], 0))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
