"""`sluicegate gateway`: the gateway alone."""

import sys

import click

from service.cli.configurable import configurable
from service.cli.gateway_options import CONTEXT_SETTINGS, GatewaySettings, gateway_options, usage_errors
from service.cli.model_argument import model_argument, resolve_or_fail
from service.config import CoreConfig
from service.server import run


@configurable
@click.command(context_settings=CONTEXT_SETTINGS)
@model_argument
@click.option(
    "--handshake-address",
    required=True,
    metavar="ADDR",
    help="Where to wait for a core: tcp://HOST:PORT, HOST being an address that the core can dial, or ipc:///PATH.",
)
@gateway_options
def gateway(model: str, handshake_address: str, settings: GatewaySettings) -> None:
    """Serve whatever core connects: `sluicegate core`, or a genuine `vllm serve --headless`.

    MODEL names the tokenizer: a folder, a .gguf file, a hub id or a name of `sluicegate pull`. The core must run the
    same model.
    """
    with usage_errors():
        core = CoreConfig(handshake_address=handshake_address, load_timeout_s=settings.core_load_timeout_s)
        files = resolve_or_fail(model, needs_weights=False)
        config = settings.config_for(files, core)
    sys.exit(run(config))
