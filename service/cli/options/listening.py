"""Where the gateway listens."""

import click

from service.cli.option_group import OptionGroup
from service.config import ListenConfig

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
        help="Where Prometheus asks for /metrics: HOST:PORT (port 0 = any), or off.",
    ),
]


def _read(grpc_address: tuple[str, ...], admin_address: str, metrics_address: str) -> ListenConfig:
    return ListenConfig(grpc_address, admin_address, "" if metrics_address == "off" else metrics_address)


LISTENING = OptionGroup("listen", "Addresses", _OPTIONS, _read)
