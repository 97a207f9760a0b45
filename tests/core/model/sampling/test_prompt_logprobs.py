"""The log-probabilities of a prompt, chunk by chunk, in bounded memory."""

import numpy as np
import pytest
import torch
from torch import Tensor

from core.model.model import Model
from core.model.runner import ModelRunner
from core.wire.messages import LogprobsTensors
from core.wire.sampling_params import SamplingParams
from tests.core.model.driver import Ask, Driver
from tests.core.model.forward import logits_of
from tests.core.model.tiny_model import TINY, random_tokens

PROMPT = random_tokens(150, TINY.vocab_size)


def scoring(k: int, prompt: list[int] | None = None) -> Ask:
    return Ask("scored", prompt or PROMPT, SamplingParams(temperature=0.0, prompt_logprobs=k))


def scores_of(ask: Ask) -> LogprobsTensors:
    assert ask.prompt_logprobs is not None
    return ask.prompt_logprobs


@pytest.mark.parametrize("budget", [512, 13], ids=["whole-prompt", "chunks"])
@pytest.mark.parametrize("k", [0, 3, -1])
def test_rows_are_those_of_one_pass(tiny: Model, k: int, budget: int) -> None:
    """The token's own, and the best k or all, in falling order; with the rank among all."""
    expected = logits_of(tiny, PROMPT)[:-1].log_softmax(-1).numpy()
    ask = scoring(k)
    Driver(ModelRunner(tiny)).run([Ask("other", PROMPT[:40], SamplingParams(temperature=0.0)), ask], 1, budget)
    token_ids, logprobs, ranks = (part.array for part in scores_of(ask)[:3])
    assert token_ids.shape == logprobs.shape == (149, 1 + (TINY.vocab_size if k == -1 else k))
    assert token_ids[:, 0].tolist() == PROMPT[1:]
    np.testing.assert_allclose(logprobs, np.take_along_axis(expected, token_ids.astype(np.int64), 1), atol=1e-4)
    assert (np.diff(logprobs[:, 1:]) <= 0).all()
    # Two that are as good as equal may change places.
    assert np.abs(ranks - ((expected > logprobs[:, :1] + 1e-6).sum(1) + 1)).max() <= 1
    assert k != -1 or (np.sort(token_ids[:, 1:]) == np.arange(TINY.vocab_size)).all()


def test_a_prefill_that_is_taken_back_is_scored_again(tiny: Model) -> None:
    """Preempted in the middle of its prompt it starts over, in other blocks, and gives what it would have given."""
    expected, preempted = scoring(2), scoring(2)
    Driver(ModelRunner(tiny)).run([expected], 1)
    driver = Driver(ModelRunner(tiny))
    driver.step({"scored": preempted}, {"scored": 70})
    driver.finish(preempted)
    driver.run([preempted], 1, budget=40)
    for part, right in zip(scores_of(preempted)[:3], scores_of(expected)[:3], strict=True):
        np.testing.assert_allclose(part.array, right.array, atol=1e-4)


class CountingModel:
    """The tiny model, and the most rows that it was asked the logits of."""

    def __init__(self, model: Model) -> None:
        self._model, self.most_rows = model, 0
        self.embed, self.forward = model.embed, model.forward
        self.architecture, self.device, self.dtype = model.architecture, model.device, model.dtype

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def logits(self, hidden: Tensor) -> Tensor:
        self.most_rows = max(self.most_rows, len(hidden))
        return self._model.logits(hidden)


def test_the_longest_prompt_takes_little_memory(tiny: Model) -> None:
    """Its logits are made a few rows at a time, and what is kept is what goes out: 8 bytes a log-probability."""
    model = CountingModel(tiny)
    ask = scoring(20, random_tokens(TINY.max_model_len - 1, TINY.vocab_size))
    Driver(ModelRunner(model)).run([ask], 1, budget=1024)  # type: ignore[arg-type]
    assert model.most_rows <= 64
    assert sum(part.array.nbytes for part in scores_of(ask)[:3]) == 510 * (21 * 8 + 4)


def test_a_prompt_of_one_token_has_nothing_to_score(tiny: Model) -> None:
    """Tables without rows, as wide as others."""
    for k, width in ((3, 4), (-1, TINY.vocab_size + 1)):
        ask = scoring(k, [7])
        Driver(ModelRunner(tiny)).run([ask], 1)
        assert scores_of(ask).token_ids.array.shape == scores_of(ask).logprobs.array.shape == (0, width)
        assert torch.from_numpy(scores_of(ask).ranks.array).numel() == 0
