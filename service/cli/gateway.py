"""`sluicegate gateway`: the gateway alone."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from service.cli.configurable import configurable
from service.cli.curve_options import curve_files, curve_options
from service.cli.gateway_options import CONTEXT_SETTINGS, GatewayCommand, GatewaySettings, gateway_options, usage_errors
from service.cli.kv_events_options import gateway_kv_events_options, of_cores_elsewhere
from service.cli.model_argument import model_argument, resolve_or_fail
from service.server import run


@configurable
@click.command(cls=GatewayCommand, context_settings=CONTEXT_SETTINGS)
@model_argument
@click.option(
    "--handshake-address",
    required=True,
    metavar="ADDR",
    help="Where to wait for cores: tcp://HOST:PORT, HOST being an address that they can dial, or ipc:///PATH.",
)
@curve_options
@gateway_options
@gateway_kv_events_options
def gateway(
    model: str,
    handshake_address: str,
    curve_key: Path | None,
    curve_core_keys: Path | None,
    settings: GatewaySettings,
    kv_events_endpoint: str | None,
    kv_events_replay_endpoint: str | None,
    kv_events_topic: str,
) -> None:
    """Serve whatever cores connect: `sluicegate core`, or a genuine `vllm serve --headless`.

    MODEL names the tokenizer: a folder, a .gguf file, a hub id or a name of `sluicegate pull`. The cores must run the
    same model. With --data-parallel-size N they are those of --data-parallel-rank 0 to N-1, from one host or several.
    """
    with usage_errors():
        curve = curve_files(curve_key, curve_core_keys)
        core = settings.core_config(handshake_address=handshake_address, curve=curve)
        files = resolve_or_fail(model, needs_weights=False)
        events = of_cores_elsewhere(kv_events_endpoint, kv_events_replay_endpoint, kv_events_topic)
        config = replace(settings.config_for(files, core), kv_events=events)
    sys.exit(run(config))
