"""`sluicegate serve`: gateway and core."""

import sys
from dataclasses import replace
from typing import Any

import click
from click.core import ParameterSource

from core.wire.version import WireVersion
from service.cli.configurable import configurable, key_of
from service.cli.engine_options import FLAGS_OF_VLLM_TOO, engine_options, spelled
from service.cli.gateway_options import CONTEXT_SETTINGS, GatewayCommand, GatewaySettings, gateway_options, usage_errors
from service.cli.kv_events_options import kv_events_option, of_own_cores, of_vllm_cores
from service.cli.model_argument import model_argument, resolve_or_fail
from service.cli.vllm_options import CORE_OUTLASTS_DRAIN_S, VllmSettings, vllm_options
from service.models import ModelFiles
from service.server import run


@configurable
@click.command(cls=GatewayCommand, context_settings=CONTEXT_SETTINGS)
@model_argument
@gateway_options
@click.option(
    "--tensor-ipc",
    type=click.Choice(["off", "shm"]),
    default="off",
    help="How prompt embeddings from 1 MiB on reach the core: with their message, or through shared memory.",
)
@kv_events_option
@engine_options
@vllm_options
def serve(
    model: str,
    settings: GatewaySettings,
    tensor_ipc: str,
    kv_events: bool,
    vllm: VllmSettings | None,
    **engine_flags: Any,
) -> None:
    """Serve MODEL: a folder, a .gguf file, a hub id or a name of `sluicegate pull`. Default: smollm2-135m.

    Starts a gateway and its cores, which share the machine. SIGTERM or Ctrl-C drains: running requests finish, then
    the exit code is 0.

    With --engine vllm the cores are vLLM's, started from --engine-python; what follows -- are options of `vllm serve`.
    Cores of other hosts that dial --handshake-address join them: `vllm serve MODEL --headless` with the same
    --data-parallel-size, a --data-parallel-start-rank, --data-parallel-address and --data-parallel-rpc-port.
    """
    with usage_errors():
        if vllm is None:
            if settings.lora_modules and not engine_flags["enable_lora"]:
                raise ValueError("--lora-modules needs --enable-lora")
            events = of_own_cores(engine_flags) if kv_events else None
            files = resolve_or_fail(model)
            command = core_command(files, settings, engine_flags)
            core = settings.core_config(command=command, tensor_ipc=tensor_ipc == "shm")
        else:
            events = of_vllm_cores(engine_flags) if kv_events else None
            shared = {name: engine_flags.pop(name) for name in FLAGS_OF_VLLM_TOO}
            own = [name for name in engine_flags if not (kv_events and name.startswith("kv_events_"))]
            _refuse(["tensor_ipc", *own], "a flag of our own engine; give vLLM's own after --")
            files = resolve_or_fail(model)
            core = vllm.core_config(files.path, settings, tuple(spelled(shared)))
        config = replace(settings.config_for(files, core), kv_events=events)
    sys.exit(run(config))


def _refuse(names: list[str], why: str) -> None:
    """Flags that the command line has; what the environment or a file says may be meant for another command."""
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{key_of(parameter)} is {why}")


def core_command(files: ModelFiles, settings: GatewaySettings, engine_flags: dict[str, Any]) -> tuple[str, ...]:
    """The argv of a core. ``-P``: a folder named core where this is started from is not our package."""
    flags = {
        "max_model_len": settings.max_model_len,
        "max_logprobs": settings.limits.max_logprobs,
        "data_parallel_size_local": settings.core.data_parallel_size,
        "shutdown_timeout": settings.limits.shutdown_s + CORE_OUTLASTS_DRAIN_S,
        "tokenizer": str(files.tokenizer_folder),
        "wire_version": WireVersion.V0_25.value,
        "log_level": settings.log_level,
        "log_format": settings.log_format,
        **engine_flags,
    }
    return (sys.executable, "-P", "-m", "core", str(files.path), *spelled(flags))
