"""Everything a gateway is told."""

import reprlib
from dataclasses import dataclass, field

from service.config.core import CoreConfig
from service.config.limits import LimitsConfig
from service.config.listen import ListenConfig
from service.models import ModelFiles

_MAX_MODEL_NAME_BYTES = 256


@dataclass(frozen=True)
class GatewayConfig:
    """Everything a gateway is told. ``model.name`` is what clients call the model."""

    model: ModelFiles
    core: CoreConfig
    listen: ListenConfig = field(default_factory=ListenConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    max_model_len: int | None = None
    """Longest prompt plus output, in tokens; None = the core's limit, which it cannot exceed."""
    lora_modules: tuple[tuple[str, str], ...] = ()
    """Adapters to load before the first request: names and folders, which are on the cores' machines."""

    def __post_init__(self) -> None:
        _check_model_name(self.model.name)
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ValueError(f"max_model_len must be at least 2, got {self.max_model_len}")


def _check_model_name(name: str) -> None:
    """It goes into messages, metrics and log lines."""
    size = len(name.encode(errors="surrogatepass"))
    if not 1 <= size <= _MAX_MODEL_NAME_BYTES or not name.isprintable():
        bound = f"printable and have 1 to {_MAX_MODEL_NAME_BYTES} bytes"
        raise ValueError(f"served_model_name must be {bound}, got {size}: {reprlib.repr(name)}")
