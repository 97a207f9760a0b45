"""How many processes the gateway is."""

from dataclasses import dataclass

MAX_GATEWAY_WORKERS = 64


@dataclass(frozen=True)
class WorkersConfig:
    """``num_workers`` processes serve, the first included; ``command`` starts each of the others."""

    num_workers: int = 1
    command: tuple[str, ...] = ()
    max_restarts: int = 20
    """Of one of them, within ten minutes; one more ends the gateway."""
    stuck_timeout_s: float = 20.0
    """How long one may answer nothing before it is replaced."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_workers <= MAX_GATEWAY_WORKERS:
            raise ValueError(f"gateway_workers must be in [1, {MAX_GATEWAY_WORKERS}], got {self.num_workers}")
        if self.num_workers > 1 and not self.command:
            raise ValueError("gateway_workers above 1 need a command")

    @property
    def is_shared(self) -> bool:
        """There are several."""
        return self.num_workers > 1
