"""The options that `serve` and `gateway` share."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from service.config import MAX_DATA_PARALLEL_SIZE, CoreConfig, CoreTerms, GatewayConfig, LimitsConfig, ListenConfig
from service.logs import LogFormat, configure_logging
from service.models import ModelFiles

CONTEXT_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 120,
    "show_default": True,
}


class LoraModule(click.ParamType[tuple[str, str]]):
    """``NAME=PATH``; a path from here on."""

    name = "name=path"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, path = str(value).partition("=")
        if not (name and equals and path):
            self.fail(f"{value!r} is not NAME=PATH", param, ctx)
        return name, str(Path(path).absolute())


_OPTIONS = [
    click.option(
        "--grpc-address",
        multiple=True,
        default=["127.0.0.1:50051"],
        metavar="ADDR",
        help="Where clients call: HOST:PORT (port 0 = any) or unix:/PATH. Repeatable.",
    ),
    click.option("--admin-address", default="127.0.0.1:50052", metavar="ADDR", help="Where operators call."),
    click.option(
        "--metrics-address",
        default="127.0.0.1:9464",
        metavar="ADDR",
        callback=lambda _context, _option, address: "" if address == "off" else address,
        help="Where Prometheus asks for /metrics: HOST:PORT (port 0 = any), or off.",
    ),
    click.option("--served-model-name", metavar="NAME", help="The model's name for clients. Default: the MODEL's own."),
    click.option(
        "--max-model-len",
        type=click.IntRange(min=2),
        help="Longest prompt plus output. Default: the model's own limit.",
    ),
    click.option(
        "--lora-modules",
        multiple=True,
        type=LoraModule(),
        metavar="NAME=PATH",
        help="Adapter to load at the start, for cores with --enable-lora: PATH is a PEFT folder. Repeatable.",
    ),
    click.option(
        "--max-queued-requests",
        type=click.IntRange(min=1),
        default=2048,
        help="Most sequences at once, running and waiting together.",
    ),
    click.option(
        "--max-logprobs",
        type=click.IntRange(min=-1),
        default=20,
        help="Most log-probabilities per token that a request may ask for; -1: those of the whole vocabulary.",
    ),
    click.option(
        "--drain-timeout",
        type=click.FloatRange(min=0),
        default=30.0,
        metavar="SECONDS",
        help="How long running requests may go on after SIGTERM.",
    ),
    click.option(
        "--core-load-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        metavar="SECONDS",
        help="How long to wait for the cores to be ready.",
    ),
    click.option(
        "--core-ping-timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30.0,
        metavar="SECONDS",
        help="How long a core may say nothing, though asked, until the server is NOT_SERVING; longer than any step.",
    ),
    click.option(
        "--data-parallel-size",
        type=click.IntRange(1, MAX_DATA_PARALLEL_SIZE),
        default=1,
        help="Cores, each with the whole model, that share the requests.",
    ),
    click.option(
        "--data-parallel-lockstep",
        is_flag=True,
        help="For mixture-of-experts models, whose ranks step together. Rank 0 must run on the gateway's machine.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        help="Least severe records to log.",
    ),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of a log line."),
]


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

    def core_config(self, **where: Any) -> CoreConfig:
        """Of the cores; ``where`` says where they come from. Raises ValueError."""
        return CoreConfig(**vars(self.core), **where)

    def config_for(self, model: ModelFiles, core: CoreConfig) -> GatewayConfig:
        """The whole configuration, for a model and where its core comes from."""
        named = replace(model, name=self.served_model_name or model.name)
        return GatewayConfig(named, core, self.listen, self.limits, self.max_model_len, self.lora_modules)


@contextmanager
def usage_errors() -> Iterator[None]:
    """A setting that its class refuses is the user's to correct."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def coordinator_command(log_level: str, log_format: LogFormat) -> tuple[str, ...]:
    """The argv of the coordinator of cores that step in lockstep. ``-P`` as for a core."""
    flags = f"--log-level={log_level}", f"--log-format={log_format}"
    return (sys.executable, "-P", "-m", "core.data_parallel", *flags)


def gateway_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as one ``settings`` argument; logging is set up by then."""

    @functools.wraps(command)
    def with_settings(
        grpc_address: tuple[str, ...],
        admin_address: str,
        metrics_address: str,
        served_model_name: str | None,
        max_model_len: int | None,
        lora_modules: tuple[tuple[str, str], ...],
        max_queued_requests: int,
        max_logprobs: int,
        drain_timeout: float,
        core_load_timeout: float,
        core_ping_timeout: float,
        data_parallel_size: int,
        data_parallel_lockstep: bool,
        log_level: str,
        log_format: LogFormat,
        **others: Any,
    ) -> None:
        configure_logging(log_level, log_format)
        with usage_errors():
            listen = ListenConfig(grpc_address, admin_address, metrics_address)
            limits = LimitsConfig(max_queued_requests, drain_timeout, max_logprobs)
            core = CoreTerms(
                load_timeout_s=core_load_timeout,
                ping_timeout_s=core_ping_timeout,
                data_parallel_size=data_parallel_size,
                coordinator_command=coordinator_command(log_level, log_format) if data_parallel_lockstep else (),
            )
        settings = GatewaySettings(
            listen, limits, served_model_name, max_model_len, core, log_level, log_format, lora_modules
        )
        command(settings=settings, **others)

    for add_option in reversed(_OPTIONS):
        with_settings = add_option(with_settings)
    return with_settings
