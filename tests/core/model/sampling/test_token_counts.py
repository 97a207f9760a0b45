"""Which tokens occurred, and how often, kept from step to step."""

from collections import Counter

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.model.request_state import RequestState
from core.model.sampling.token_counts import UNSEEN, TokenCounts
from tests.core.model.forward import make_request

VOCAB_SIZE = 12
tokens = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=9)


def check(occurred: TokenCounts, request: RequestState, slot: int, length: int) -> None:
    """The line of a request against its first ``length`` tokens."""
    token_ids = request.token_ids.array[:length].tolist()
    prompt, output = token_ids[: request.num_prompt_tokens], Counter(token_ids[request.num_prompt_tokens :])
    expected = [output[token] if token in token_ids else UNSEEN for token in range(VOCAB_SIZE)]
    assert occurred.counts[slot].tolist() == expected
    assert {*occurred.tokens[slot].tolist()} - {0} == {*prompt, *output} - {0}


@given(st.data(), st.lists(st.tuples(tokens.filter(bool), tokens), min_size=1, max_size=5))
def test_lines_follow_their_requests(data: st.DataObject, known: list[tuple[list[int], list[int]]]) -> None:
    """Requests come, go and come again, and grow by several tokens at once or by none."""
    requests = [make_request(prompt + output, len(prompt)) for prompt, output in known]
    occurred = TokenCounts(torch.zeros(1, VOCAB_SIZE))
    for _ in range(4):
        present = data.draw(st.lists(st.sampled_from(requests), unique_by=id, min_size=1))
        slots = occurred.arrange(present)
        lengths = np.array([len(request.token_ids) for request in present])
        width = occurred.catch_up(present, slots, lengths)
        for request, slot, length in zip(present, slots.tolist(), lengths.tolist(), strict=True):
            check(occurred, request, slot, length)
            assert not occurred.tokens[slot, width:].any()
        for request in requests:
            request.token_ids.extend(data.draw(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=3)))
