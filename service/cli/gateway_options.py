"""The options that `serve` and `gateway` share; each may also stand in the environment or in a configuration file."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import yaml

from service.config import CoreConfig, GatewayConfig, LimitsConfig, ListenConfig
from service.logs import LogFormat, configure_logging
from service.models import ModelFiles

CONTEXT_SETTINGS: dict[str, Any] = {
    "auto_envvar_prefix": "SLUICEGATE",
    "help_option_names": ["-h", "--help"],
    "max_content_width": 120,
    "show_default": True,
}
option = functools.partial(click.option, show_envvar=True)


def read_config(context: click.Context, _option: click.Parameter, path: Path | None) -> None:
    """Let the keys of a YAML file stand in for flags that are given neither on the command line nor in the environment.

    Raises click.BadParameter for a file that is no mapping, and for keys that are no flags.
    """
    if path is None:
        return
    parameters = {_key(parameter): parameter for parameter in context.command.params if parameter.name != "config"}
    values = _mapping(path)
    unknown = sorted(str(key) for key in values if key not in parameters)
    if unknown:
        raise click.BadParameter(f"{path} has unknown keys: {', '.join(unknown)} (known: {', '.join(parameters)})")
    context.default_map = {parameters[key].name: _value(parameters[key], value) for key, value in values.items()}


def _mapping(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path} is not YAML: {error}") from error
    if not isinstance(values, dict):
        raise click.BadParameter(f"{path} must hold a mapping of flags to values")
    return values


def _key(parameter: click.Parameter) -> str:
    return str(parameter.name).replace("_", "-")


def _value(parameter: click.Parameter, value: Any) -> Any:
    """A flag that may be repeated may stand with one value, without a list."""
    repeatable = isinstance(parameter, click.Option) and parameter.multiple
    return [value] if repeatable and not isinstance(value, list) else value


_OPTIONS = [
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        callback=read_config,
        is_eager=True,
        expose_value=False,
        show_envvar=True,
        help="YAML file with flags as keys; flags and the environment come before it.",
    ),
    option(
        "--grpc-address",
        multiple=True,
        default=["127.0.0.1:50051"],
        metavar="ADDR",
        help="Where clients call: HOST:PORT (port 0 = any) or unix:/PATH. Repeatable.",
    ),
    option("--admin-address", default="127.0.0.1:50052", metavar="ADDR", help="Where operators call."),
    option("--served-model-name", metavar="NAME", help="The model's name for clients.  [default: the MODEL's own]"),
    option(
        "--max-model-len",
        type=click.IntRange(min=2),
        help="Longest prompt plus output, in tokens.  [default: the model's]",
    ),
    option(
        "--max-queued-requests",
        type=click.IntRange(min=1),
        default=2048,
        help="Most sequences at once, running and waiting together.",
    ),
    option(
        "--drain-timeout",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="How long running requests may go on after SIGTERM.",
    ),
    option(
        "--core-load-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        metavar="SECONDS",
        help="How long to wait for the core to be ready.",
    ),
    option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        help="Least severe records to log.",
    ),
    option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of a log line."),
]


@dataclass(frozen=True)
class GatewaySettings:
    """What the options say."""

    listen: ListenConfig
    limits: LimitsConfig
    served_model_name: str | None
    max_model_len: int | None
    core_load_timeout_s: float
    log_level: str

    def config_for(self, model: ModelFiles, core: CoreConfig) -> GatewayConfig:
        """The whole configuration, for a model and where its core comes from."""
        named = replace(model, name=self.served_model_name or model.name)
        return GatewayConfig(named, core, self.listen, self.limits, self.max_model_len)


@contextmanager
def usage_errors() -> Iterator[None]:
    """A setting that its class refuses is the user's to correct."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one ``settings`` argument; logging is set up by then."""

    @functools.wraps(command)
    def with_settings(
        grpc_address: tuple[str, ...],
        admin_address: str,
        served_model_name: str | None,
        max_model_len: int | None,
        max_queued_requests: int,
        drain_timeout: float,
        core_load_timeout: float,
        log_level: str,
        log_format: LogFormat,
        **others: Any,
    ) -> None:
        configure_logging(log_level, log_format)
        with usage_errors():
            listen = ListenConfig(grpc_address, admin_address)
            limits = LimitsConfig(max_queued_requests, drain_timeout)
        settings = GatewaySettings(listen, limits, served_model_name, max_model_len, core_load_timeout, log_level)
        command(settings=settings, **others)

    for add_option in reversed(_OPTIONS):
        with_settings = add_option(with_settings)
    return with_settings
