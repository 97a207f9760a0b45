"""The program `sluicegate-client`: the commands that call a server, where the client is installed without one."""

import os

import click

from sluicegate_client.cli import chat, generate
from sluicegate_client.health_cli import health
from sluicegate_client.lora_cli import lora
from sluicegate_client.top.cli import top


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sluicegate-client", prog_name="sluicegate-client")
def main() -> None:
    """Call a Sluicegate server."""
    # Read by gRPC when it is first used. Its INFO lines would stand between the words of an answer.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


for command in (generate, chat, health, lora, top):
    main.add_command(command)
