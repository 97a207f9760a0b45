"""What is wrong with what a step gave a request."""

import pytest

from core.executor.interface import ModelRunnerOutput
from core.step_fault import Fault, find_fault
from tests.core.builders import VOCAB_SIZE, make_request

IMPOSSIBLE = "no token is possible: allowed_token_ids, bad words, min_tokens and the grammar rule out every one"


@pytest.mark.parametrize(
    ("result", "fault"),
    [
        (ModelRunnerOutput({"r": [0, VOCAB_SIZE - 1]}), None),
        (ModelRunnerOutput({"r": [5], "other": [-1]}, num_nans_in_logits={"other": 3}), None),
        (ModelRunnerOutput({"r": [5]}, num_nans_in_logits={"r": 3}), Fault("3 NaN in its logits", 3)),
        (ModelRunnerOutput({"r": [5, -1]}), Fault("sampled token id -1 outside [0, 999]")),
        (ModelRunnerOutput({"r": [VOCAB_SIZE]}), Fault("sampled token id 1000 outside [0, 999]")),
        (
            ModelRunnerOutput({"r": [5]}, no_possible_token={"r"}),
            Fault(f"refused: {IMPOSSIBLE}", is_the_models=False),
        ),
    ],
    ids=["nothing", "another's", "NaN", "negative", "outside the vocabulary", "impossible"],
)
def test_faults(result: ModelRunnerOutput, fault: Fault | None) -> None:
    """NaN, ids that are none, and no possible token: only the last leaves what was computed to be trusted."""
    assert find_fault(make_request(), result, VOCAB_SIZE) == fault


def test_it_is_a_refusal_however_far_the_request_has_come() -> None:
    """What leaves it no token is what it asks for."""
    request = make_request()
    request.token_ids.append(4)
    fault = find_fault(request, ModelRunnerOutput({"r": [5]}, no_possible_token={"r"}), VOCAB_SIZE)
    assert fault == Fault(f"refused: {IMPOSSIBLE}", is_the_models=False)
