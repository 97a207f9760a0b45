"""Requests that are aborted before they run."""

from service.servicers.vllm_engine.arrivals import Arrivals


def test_an_abort_finds_what_is_being_read() -> None:
    """All of one id; what has gone on, and other ids, it leaves alone."""
    arrivals = Arrivals()
    with arrivals.one("before") as before:
        pass
    with arrivals.one("a") as first, arrivals.one("a") as second, arrivals.one("b") as other:
        arrivals.abort(["a", "before", "unknown"])
        assert [first.is_aborted, second.is_aborted, other.is_aborted, before.is_aborted] == [True, True, False, False]
        arrivals.abort([])
        assert first.is_aborted
        assert len(arrivals) == 3
    assert len(arrivals) == 0
