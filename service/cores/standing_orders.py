"""What the cores were told that holds until they are told otherwise, for one that comes in another's place. Pure.

pause_scheduler, sleep   until resume_scheduler, a whole wake_up, or is_sleeping says no
wake_up of some memory   belongs to the sleep before it
add_lora                 until remove_lora
"""

from collections.abc import Iterator
from typing import Any, NamedTuple


class Order(NamedTuple):
    """A utility call."""

    method: str
    args: tuple[Any, ...]


class StandingOrders:
    """``note`` them when all cores have carried them out."""

    def __init__(self) -> None:
        self._loras: dict[int, Order] = {}
        self._rest: list[Order] = []

    def __iter__(self) -> Iterator[Order]:
        """In the order in which a new core is to be told."""
        return iter([*self._loras.values(), *self._rest])

    def note(self, method: str, args: tuple[Any, ...], result: Any) -> None:
        """Cores have answered ``result``."""
        order = Order(method, args)
        match method:
            case "pause_scheduler":
                self._rest = [other for other in self._rest if other.method != method] + [order]
            case "sleep":
                self._rest = [order]
            case "wake_up" if any(args):
                self._rest.append(order)
            case "resume_scheduler" | "wake_up":
                self._rest = []
            case "is_sleeping" if not result:
                self._rest = []
            case "add_lora":
                self._loras[_lora_id(args[0])] = order
            case "remove_lora":
                self._loras.pop(args[0], None)


def _lora_id(lora: Any) -> int:
    """Of a LoRARequest, or of its fields in their order."""
    number: int = lora[1] if isinstance(lora, tuple) else lora.lora_int_id
    return number
