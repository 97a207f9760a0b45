"""What the workers have counted, as they told it last."""

from service.workers.ledger import Ledger


def test_nothing_is_uncounted() -> None:
    """Each worker's last word counts, and that of those that are gone for good, once."""
    ledger = Ledger(lambda told: str(sum(map(int, told))).encode())
    ledger.note(1, b"1")
    ledger.note(1, b"5")
    ledger.note(2, b"10")
    assert ledger.all == [b"5", b"10"]
    ledger.bury(1)
    ledger.bury(1)
    assert ledger.all == [b"10", b"5"]
    ledger.note(1, b"2")
    ledger.bury(1)
    assert ledger.all == [b"10", b"7"]
