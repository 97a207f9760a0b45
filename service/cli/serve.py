"""`sluicegate serve`: gateway and core."""

import sys
from pathlib import Path
from typing import Any

import click

from core.wire.version import WireVersion
from service.cli.configurable import configurable
from service.cli.engine_options import engine_options, spelled
from service.cli.gateway_options import CONTEXT_SETTINGS, GatewaySettings, gateway_options, usage_errors
from service.cli.model_argument import model_argument, resolve_for_core
from service.server import run

_CORE_OUTLASTS_DRAIN_S = 10.0
"""A service manager signals the core too: it is the gateway that ends the drain."""


@configurable
@click.command(context_settings=CONTEXT_SETTINGS)
@model_argument
@gateway_options
@click.option(
    "--tensor-ipc",
    type=click.Choice(["off", "shm"]),
    default="off",
    help="How prompt embeddings from 1 MiB on reach the core: with their message, or through shared memory.",
)
@engine_options
def serve(model: str, settings: GatewaySettings, tensor_ipc: str, **engine_flags: Any) -> None:
    """Serve MODEL: a folder, a .gguf file, a hub id or a name of `sluicegate pull`.

    Starts a gateway and its cores, which share the machine. SIGTERM or Ctrl-C drains: running requests finish, then
    the exit code is 0.
    """
    files = resolve_for_core(model)
    with usage_errors():
        command = core_command(files.path, settings, engine_flags)
        core = settings.core_config(command=command, tensor_ipc=tensor_ipc == "shm")
        config = settings.config_for(files, core)
    sys.exit(run(config))


def core_command(model_path: Path, settings: GatewaySettings, engine_flags: dict[str, Any]) -> tuple[str, ...]:
    """The argv of a core. ``-P``: a folder named core where this is started from is not our package."""
    flags = {
        "max_model_len": settings.max_model_len,
        "data_parallel_size_local": settings.core.data_parallel_size,
        "shutdown_timeout": settings.limits.drain_timeout_s + _CORE_OUTLASTS_DRAIN_S,
        "wire_version": WireVersion.V0_25.value,
        "log_level": settings.log_level,
        "log_format": settings.log_format,
        **engine_flags,
    }
    return (sys.executable, "-P", "-m", "core", str(model_path), *spelled(flags))
