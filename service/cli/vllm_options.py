"""The options of `serve` that put vLLM's own engine behind the gateway."""

import functools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from service.cli.gateway_options import GatewaySettings, usage_errors
from service.config import CoreConfig

CORE_OUTLASTS_DRAIN_S = 10.0
"""A service manager signals the core too: it is the gateway that ends the drain."""
_TERMINATE_GRACE_S = 20.0
"""How long vLLM may take over SIGTERM."""
_FORCE_S = 10.0
"""What ``service.cores.vllm_engine`` may take longer, to end it by force."""
_ANY_PORT_HERE = "tcp://127.0.0.1:0"

_OPTIONS = [
    click.option(
        "--engine", type=click.Choice(["torch", "vllm"]), default="torch", help="Whose cores: our own, or vLLM's."
    ),
    click.option(
        "--engine-python",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="PATH",
        help="With --engine vllm: the Python of an environment that has vLLM.",
    ),
    click.option(
        "--handshake-address",
        metavar="ADDR",
        help="With --engine vllm: tcp://HOST:PORT, where its cores dial, those of other hosts too. "
        f"[default: {_ANY_PORT_HERE}]",
    ),
    click.argument("engine_arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- VLLM_OPTIONS]"),
]


@dataclass(frozen=True)
class VllmSettings:
    """``arguments``: for `vllm serve`, as they are."""

    python: Path
    handshake_address: str
    arguments: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.handshake_address.startswith("tcp://"):
            raise ValueError(f"handshake_address must be tcp://HOST:PORT for vLLM, got {self.handshake_address!r}")

    def core_config(self, model: Path, settings: GatewaySettings, flags: tuple[str, ...] = ()) -> CoreConfig:
        """Of cores that one child brings up; ``flags`` of ours that are vLLM's too. Raises ValueError."""
        return settings.core_config(
            command=(sys.executable, "-P", "-m", "service.cores.vllm_engine", *self._flags(model, settings, flags)),
            handshake_address=self.handshake_address,
            terminate_grace_s=_TERMINATE_GRACE_S + _FORCE_S,
        )

    def _flags(self, model: Path, settings: GatewaySettings, flags: tuple[str, ...]) -> Iterator[str]:
        yield from (f"--engine-python={self.python}", f"--model={model}")
        yield f"--terminate-grace-s={_TERMINATE_GRACE_S:g}"
        yield from (f"--log-level={settings.log_level}", f"--log-format={settings.log_format}")
        yield from (f"--engine-option={word}" for word in self._engine_options(settings, flags))

    def _engine_options(self, settings: GatewaySettings, flags: tuple[str, ...]) -> Iterator[str]:
        """What is given by hand comes last, so that it counts."""
        yield f"--data-parallel-size={settings.core.data_parallel_size}"
        yield f"--shutdown-timeout={math.ceil(settings.limits.shutdown_s + CORE_OUTLASTS_DRAIN_S)}"
        yield f"--max-logprobs={settings.limits.max_logprobs}"
        if settings.max_model_len is not None:
            yield f"--max-model-len={settings.max_model_len}"
        yield from flags
        yield from self.arguments


def vllm_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one ``vllm`` argument; None: it is not vLLM's engine."""

    @functools.wraps(command)
    def with_vllm(
        engine: str,
        engine_python: Path | None,
        handshake_address: str | None,
        engine_arguments: tuple[str, ...],
        **others: Any,
    ) -> None:
        if engine != "vllm":
            if engine_arguments:
                raise click.UsageError(f"only --engine vllm takes more arguments, got {' '.join(engine_arguments)}")
            command(vllm=None, **others)
            return
        if engine_python is None:
            raise click.UsageError("--engine vllm needs --engine-python, the Python of an environment that has vLLM")
        with usage_errors():
            vllm = VllmSettings(engine_python, handshake_address or _ANY_PORT_HERE, engine_arguments)
        command(vllm=vllm, **others)

    for add_option in reversed(_OPTIONS):
        with_vllm = add_option(with_vllm)
    return with_vllm
