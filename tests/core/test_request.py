"""A request: its seed, its bound, and what it reports once."""

from core.request import choose_seed
from core.wire.messages import EventType
from tests.core.builders import make_request


def test_a_request_keeps_its_own_seed() -> None:
    """An explicit seed, zero too, is used whatever the engine's seed and the id are."""
    assert choose_seed(7, engine_seed=1, request_id="a") == 7
    assert choose_seed(0, engine_seed=1, request_id="b") == 0


def test_without_a_seed_the_id_decides() -> None:
    """The same id draws the same again, another id or another engine seed does not; -1 means no seed."""
    seed = choose_seed(None, engine_seed=1, request_id="a")
    assert seed == choose_seed(-1, engine_seed=1, request_id="a")
    assert len({seed, choose_seed(None, 1, "b"), choose_seed(None, 2, "a")}) == 3


def test_the_derived_seed_is_the_same_in_every_process_and_version() -> None:
    """A successor of this core must draw what this one would have drawn."""
    assert choose_seed(None, engine_seed=0, request_id="request-1") == 3190941232672791606


def test_every_seed_fits_a_signed_64_bit_integer() -> None:
    """Negative and unsigned 64-bit seeds are folded into [0, 2**63)."""
    for seed in (-5, 2**64 - 1, 2**63):
        assert 0 <= choose_seed(seed, 0, "a") < 2**63


def test_the_length_bound_is_the_nearer_of_max_tokens_and_the_engines() -> None:
    """3 prompt tokens and max_tokens 5 end at 8; without max_tokens, or beyond the limit, the limit holds."""
    assert make_request(max_tokens=5, max_num_tokens=64).max_num_tokens == 8
    assert make_request(max_tokens=None, max_num_tokens=64).max_num_tokens == 64
    assert make_request(max_tokens=500, max_num_tokens=64).max_num_tokens == 64


def test_the_prompt_and_the_output_are_told_apart() -> None:
    """Tokens appended after the prompt are output."""
    request = make_request(prompt=[1, 2, 3])
    request.token_ids += [8, 9]
    assert request.prompt_token_ids == [1, 2, 3]
    assert request.output_token_ids == [8, 9]
    assert request.num_output_tokens == 2


def test_events_and_prefill_statistics_are_reported_once() -> None:
    """The second time there is nothing to tell."""
    request = make_request(prompt=range(5))
    request.num_cached_tokens = 4
    request.record(EventType.QUEUED)
    events = request.take_events()
    assert events is not None
    assert [event.type for event in events] == [EventType.QUEUED]
    stats = request.take_prefill_stats()
    assert stats is not None
    assert (stats.num_prompt_tokens, stats.num_computed_tokens, stats.num_cached_tokens) == (5, 1, 4)
    assert request.take_events() is None
    assert request.take_prefill_stats() is None
