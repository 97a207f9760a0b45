"""The command `sluicegate top`."""

import time

import click
from rich.console import Console
from rich.live import Live

from sluicegate_client.access import ADMIN_KEY_VARIABLE, Access, access_options
from sluicegate_client.address import admin_address_option
from sluicegate_client.admin import AdminClient
from sluicegate_client.cli import exit_codes
from sluicegate_client.top.screen import Screen
from sluicegate_client.top.view import WINDOW_S, Watcher

_CONNECT_TIMEOUT_S = 5.0


@click.command(epilog=f"Rates and latencies are of the last {WINDOW_S:g} seconds. Ctrl-C ends it.")
@admin_address_option
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many looks.")
@access_options(ADMIN_KEY_VARIABLE)
def top(admin_address: str, access: Access, interval: float, count: int | None) -> None:
    """Watch a running server: requests, queue, KV cache, tokens/s, TTFT, and each core.

    Where the output is no terminal, every look is printed below the one before.
    """
    console = Console()
    with exit_codes(), AdminClient(admin_address, **vars(access)) as client:
        info = client.server_info(timeout=_CONNECT_TIMEOUT_S)
        screen, watcher = Screen(f"{info.model} at {', '.join(info.grpc_addresses)}"), Watcher()
        try:
            with Live(console=console, auto_refresh=False, transient=False) as live:
                for num_looks, load in enumerate(client.watch_load(interval), start=1):
                    picture = screen.draw(watcher.see(load, time.monotonic()))
                    if console.is_terminal:
                        live.update(picture, refresh=True)
                    else:
                        console.print(picture)
                    if num_looks == count:
                        return
        except KeyboardInterrupt:
            return
    raise click.ClickException("the server has stopped")
