"""The command `sluicegate`."""

import os

import click

from core.wire.first_process import end_at_sigterm
from core.wire.standard_files import open_standard_files
from service.cli.lazy_group import LazyCommand, LazyGroup

open_standard_files()
end_at_sigterm()

# Read by gRPC when it is first used. Its INFO lines would stand between the words of an answer and in the server's log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

_COMMANDS = {
    "serve": LazyCommand("service.cli.serve:serve", "Serve a model: gateway and core."),
    "gateway": LazyCommand("service.cli.gateway:gateway", "Run the gateway alone; cores connect to it."),
    "core": LazyCommand("service.cli.core:core", "Run an engine core alone; it connects to a gateway."),
    "keys": LazyCommand("service.cli.keys:keys", "Make CURVE keys for gateways and cores on different machines."),
    "pull": LazyCommand("service.cli.pull:pull", "Fetch a model into the cache."),
    "generate": LazyCommand("sluicegate_client.cli:generate", "Continue a prompt, streaming to the terminal."),
    "chat": LazyCommand("sluicegate_client.cli:chat", "Talk to the model."),
    # Probes run it beside a server, in its environment: what that says of the server's certificate and configuration
    # file is not for them, and reading the file would import every other command.
    "health": LazyCommand(
        "sluicegate_client.health_cli:health", "Ask a server whether it serves, as probes do.", is_configurable=False
    ),
    "lora": LazyCommand("sluicegate_client.lora_cli:lora", "Load and unload the LoRA adapters of a running server."),
    "top": LazyCommand("sluicegate_client.top.cli:top", "Watch a running server, live."),
    "bench": LazyCommand("bench.cli:bench", "Put load on a server and report its speed."),
}


@click.group(cls=LazyGroup, commands_by_name=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluicegate", prog_name="sluicegate")
def main() -> None:
    """LLM inference over gRPC.

    Start with `sluicegate serve`, then talk to it with `sluicegate chat`.
    """
