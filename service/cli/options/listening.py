"""Where the gateway listens."""

import click

from service.cli.option_group import OptionGroup
from service.config import ListenConfig


class OctalMode(click.ParamType[int]):
    """Permissions, as ``chmod`` takes them."""

    name = "mode"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(str(value), base=8)
        except ValueError:
            self.fail(f"{value!r} is no octal number", param, ctx)


_OPTIONS = [
    click.option(
        "--grpc-address",
        multiple=True,
        default=["127.0.0.1:50051"],
        metavar="ADDR",
        help="Where clients call: HOST:PORT (port 0 = any) or unix:/PATH. Repeatable.",
    ),
    click.option(
        "--plaintext-address",
        multiple=True,
        metavar="ADDR",
        help="The same without TLS and keys, though they are configured: for neighbours in the machine or pod. "
        "Repeatable.",
    ),
    click.option(
        "--health-address",
        default="",
        metavar="ADDR",
        help="Where health alone is served, without TLS and keys: Kubernetes probes know neither.",
    ),
    click.option(
        "--socket-mode",
        type=OctalMode(),
        default="600",
        metavar="MODE",
        help="Permissions of the files of unix sockets; 660 lets the group in.",
    ),
    click.option("--admin-address", default="127.0.0.1:50052", metavar="ADDR", help="Where operators call."),
    click.option(
        "--metrics-address",
        default="127.0.0.1:9464",
        metavar="ADDR",
        help="Where Prometheus asks for /metrics: HOST:PORT (port 0 = any), or off.",
    ),
]


def _read(
    grpc_address: tuple[str, ...],
    plaintext_address: tuple[str, ...],
    health_address: str,
    socket_mode: int,
    admin_address: str,
    metrics_address: str,
) -> ListenConfig:
    metrics = "" if metrics_address == "off" else metrics_address
    return ListenConfig(grpc_address, admin_address, metrics, plaintext_address, health_address, socket_mode)


LISTENING = OptionGroup("listen", "Addresses", _OPTIONS, _read)
