"""service.generation_request: what the core gets for each of the n sequences."""

from core.wire.sampling_params import SamplingParams
from service.generation_request import GenerationRequest


def test_single_sequence_gets_the_request_s_own_parameters() -> None:
    """n = 1: nothing to change."""
    request = GenerationRequest("r", [1], SamplingParams(seed=7))
    assert request.sequence_params(0) is request.sampling_params


def test_each_of_n_is_one_sequence_with_a_seed_of_its_own() -> None:
    """seed, seed + 1, ...; everything else is shared."""
    request = GenerationRequest("r", [1], SamplingParams(n=3, seed=7, top_p=0.5))
    assert [request.sequence_params(i) for i in range(3)] == [SamplingParams(seed=7 + i, top_p=0.5) for i in range(3)]


def test_no_sequence_of_a_seeded_request_is_without_a_seed() -> None:
    """-1 would mean none: it is passed over."""
    request = GenerationRequest("r", [1], SamplingParams(n=4, seed=-3))
    assert [request.sequence_params(i).seed for i in range(4)] == [-3, -2, 0, 1]


def test_sequences_without_a_seed_stay_without() -> None:
    """The core gives each its own."""
    request = GenerationRequest("r", [1], SamplingParams(n=2))
    assert request.sequence_params(1) == SamplingParams()
