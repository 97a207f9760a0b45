"""What a core is told that comes in another's place."""

from core.wire.messages import LoRARequest
from service.cores.standing_orders import StandingOrders

LORA = LoRARequest("pirate", 1, "/pirate")


def orders_after(*calls: tuple[str, tuple[object, ...], object]) -> list[tuple[str, tuple[object, ...]]]:
    orders = StandingOrders()
    for call in calls:
        orders.note(*call)
    return [tuple(order) for order in orders]


PAUSE, SLEEP = ("pause_scheduler", ("keep", True), None), ("sleep", (1, "abort"), None)
WAKE_WEIGHTS, WAKE = ("wake_up", (["weights"],), None), ("wake_up", (None,), None)
RESUME = ("resume_scheduler", (), None)


def test_a_pause_and_a_sleep_hold_until_they_end() -> None:
    """Whatever ends them."""
    assert orders_after(PAUSE) == [PAUSE[:2]]
    assert orders_after(PAUSE, PAUSE) == [PAUSE[:2]]
    assert orders_after(PAUSE, SLEEP, WAKE_WEIGHTS) == [SLEEP[:2], WAKE_WEIGHTS[:2]]
    for end in (RESUME, WAKE, ("is_sleeping", (), False)):
        assert orders_after(PAUSE, SLEEP, WAKE_WEIGHTS, end) == []
    assert orders_after(SLEEP, ("is_sleeping", (), True)) == [SLEEP[:2]]


def test_adapters_hold_until_they_are_removed() -> None:
    """In either layout of the wire; they come before a sleep, in which none could be loaded."""
    newer = ("parrot", 2, "/parrot", None, False, False)
    load = ("add_lora", (LORA,), True), ("add_lora", (newer,), True)
    assert orders_after(SLEEP, *load) == [load[0][:2], load[1][:2], SLEEP[:2]]
    assert orders_after(*load, ("remove_lora", (1,), True), ("remove_lora", (7,), False)) == [load[1][:2]]


def test_questions_and_what_is_done_once_leave_nothing() -> None:
    """They are no orders."""
    assert orders_after(("reset_prefix_cache", (False, False), True), ("list_loras", (), [1]), RESUME) == []
