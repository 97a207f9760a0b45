"""The options that `serve` and `gateway` share."""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import click

from core.wire.log_lines import LogFormat
from service.cli.configurable import key_of
from service.cli.option_group import SectionedCommand
from service.cli.options.connections import CONNECTIONS
from service.cli.options.cores import CORES
from service.cli.options.limits import LIMITS
from service.cli.options.listening import LISTENING
from service.cli.options.logs import LOGS, Logs
from service.cli.options.security import SECURITY
from service.cli.options.serving import SERVING
from service.cli.options.tracing import TRACING
from service.cli.options.workers import WORKERS
from service.config import (
    ConnectionsConfig,
    CoreConfig,
    CoreTerms,
    GatewayConfig,
    LimitsConfig,
    ListenConfig,
    SecurityConfig,
    TracingConfig,
    WorkersConfig,
)
from service.logs import configure_logging
from service.models import ModelFiles
from service.open_files import allow_open_files

CONTEXT_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 120,
    "show_default": True,
}
_GROUPS = (LISTENING, SECURITY, CONNECTIONS, WORKERS, SERVING, LIMITS, CORES, LOGS, TRACING)


class GatewayCommand(SectionedCommand):
    """A command with these options."""

    sections = {group.title: group.parameters for group in _GROUPS}


@dataclass(frozen=True)
class GatewaySettings:
    """What the options say."""

    listen: ListenConfig
    limits: LimitsConfig
    served_model_name: str | None
    max_model_len: int | None
    core: CoreTerms
    log_level: str
    log_format: LogFormat
    lora_modules: tuple[tuple[str, str], ...] = ()
    security: SecurityConfig = field(default_factory=SecurityConfig)
    tracing: TracingConfig = field(default_factory=TracingConfig)
    connections: ConnectionsConfig = field(default_factory=ConnectionsConfig)
    workers: WorkersConfig = field(default_factory=WorkersConfig)

    def core_config(self, **where: Any) -> CoreConfig:
        """Of the cores; ``where`` says where they come from. Raises ValueError."""
        return CoreConfig(**vars(self.core), **where)

    def config_for(self, model: ModelFiles, core: CoreConfig) -> GatewayConfig:
        """The whole configuration, for a model and where its core comes from."""
        named = replace(model, name=self.served_model_name or model.name)
        return GatewayConfig(
            named,
            core,
            self.listen,
            self.limits,
            self.max_model_len,
            self.lora_modules,
            security=self.security,
            tracing=self.tracing,
            connections=self.connections,
            workers=self.workers,
        )


_SETTING = re.compile(r"(?<![\w/'\".-])[a-z]+(?:_[a-z]+)+\b")
"""Of several words, and not within a value."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """A setting that its class refuses is the user's to correct."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(_by_flags(str(error))) from error


def _by_flags(text: str) -> str:
    """Settings by the names that their user knows: not ``drain_timeout`` but ``--drain-timeout``."""
    options = [each for each in click.get_current_context().command.params if isinstance(each, click.Option)]
    flags = {str(option.name): f"--{key_of(option)}" for option in options}
    return _SETTING.sub(lambda found: flags.get(found[0], found[0]), text)


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one ``settings`` argument; logging is set up by then."""

    @functools.wraps(command)
    def with_settings(**values: Any) -> None:
        logs: Logs = LOGS.take(values)
        configure_logging(logs.log_level, logs.log_format, logs.access_log)
        allow_open_files()
        with usage_errors():
            groups = LISTENING, SECURITY, CONNECTIONS, WORKERS, LIMITS, CORES, TRACING
            pieces: dict[str, Any] = {group.name: group.take(values) for group in groups}
            pieces["core"] = _with_logs(pieces["core"], logs)
            pieces["workers"] = replace(pieces["workers"], command=(*pieces["workers"].command, *logs.gateway_flags))
            pieces |= {"log_level": logs.log_level, "log_format": logs.log_format}
            settings = GatewaySettings(**pieces, **vars(SERVING.take(values)))
        command(settings=settings, **values)

    configured: Callable[..., None] = with_settings
    for group in reversed(_GROUPS):
        configured = group.added_to(configured)
    return configured


def _with_logs(core: CoreTerms, logs: Logs) -> CoreTerms:
    """The coordinator logs as the gateway does."""
    if not core.is_lockstep:
        return core
    return replace(core, coordinator_command=(*core.coordinator_command, *logs.flags))
