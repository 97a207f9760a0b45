"""The command-line options of any core process: whom it dials, and how it ends."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from core.hosts import ALONE, Hosts
from core.logs import configure_logging
from core.process import ProcessConfig
from core.wire.curve import CurveClient, CurveError, read_pair, read_public
from core.wire.handshake import HandshakeConfig
from core.wire.log_lines import LogFormat
from core.wire.version import WireVersion

CONTEXT_SETTINGS: dict[str, Any] = {
    "auto_envvar_prefix": "SLUICEGATE",
    "show_default": True,
    "max_content_width": 120,
    "help_option_names": ["-h", "--help"],
}
option = functools.partial(click.option, show_envvar=True)
"""An option of a core process: also to be given as SLUICEGATE_… in the environment, which its help says."""

_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = [
    option("--handshake-address", metavar="ADDR", help="Where the front end listens: ipc://PATH or tcp://HOST:PORT."),
    option("--data-parallel-address", metavar="HOST", help="Host of the front end, as vLLM spells it."),
    option("--data-parallel-rpc-port", type=click.IntRange(1, 65535), help="Its port."),
    option(
        "--data-parallel-rank",
        type=click.IntRange(0, 65535),
        default=0,
        help="Rank of this core, its identity on the wire.",
    ),
    option("--headless/--local", default=True, help="Whether the front end is elsewhere or this core's parent."),
    option(
        "--curve-key",
        type=_FILE,
        metavar="FILE",
        help="This core's pair of CURVE keys (.key_secret): all that it says and hears over tcp is encrypted.",
    ),
    option("--curve-gateway-key", type=_FILE, metavar="FILE", help="The public key (.key) of its gateway."),
    option(
        "--shutdown-timeout",
        type=click.FloatRange(min=0),
        default=0.0,
        metavar="SECONDS",
        help="How long running requests may go on after SIGTERM; 0 aborts them.",
    ),
    option(
        "--lifeline-fd",
        type=click.IntRange(min=0),
        help="Inherited read end of a pipe; when it ends, so does this core.",
    ),
    option(
        "--tensor-ipc-fd",
        type=click.IntRange(min=0),
        help="Inherited end of a pair of sockets, by which the front end hands large tensors over.",
    ),
    option(
        "--wire-version",
        type=click.Choice(["auto", *(version.value for version in WireVersion)]),
        default="auto",
        help="Release of vLLM whose front ends this core serves; auto: each is known by its first request.",
    ),
    option(
        "--survive-frontend/--no-survive-frontend",
        default=False,
        help="When the last front end is gone, wait for the next one, with the model loaded, instead of going too.",
    ),
    option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        help="Least severe records to log.",
    ),
    option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of a log line."),
]


def process_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one ``process`` argument, a ProcessConfig.

    A front end's address must be among them, unless the command has ``hosts`` and this one only runs ranks.
    """

    @functools.wraps(command)
    def with_process(
        handshake_address: str | None,
        data_parallel_address: str | None,
        data_parallel_rpc_port: int | None,
        data_parallel_rank: int,
        headless: bool,
        curve_key: Path | None,
        curve_gateway_key: Path | None,
        shutdown_timeout: float,
        lifeline_fd: int | None,
        tensor_ipc_fd: int | None,
        wire_version: str,
        survive_frontend: bool,
        log_level: str,
        log_format: LogFormat,
        **others: Any,
    ) -> Any:
        configure_logging(log_level, log_format)
        address = handshake_address or _tcp_address(data_parallel_address, data_parallel_rpc_port)
        _check_address(address, headless, others.get("hosts", ALONE))
        curve = _curve(curve_key, curve_gateway_key, address)
        handshake = HandshakeConfig(address, data_parallel_rank, local=not headless, curve=curve)
        version = None if wire_version == "auto" else WireVersion(wire_version)
        process = ProcessConfig(handshake, shutdown_timeout, lifeline_fd, version, survive_frontend, tensor_ipc_fd)
        return command(process=process, **others)

    for add_option in reversed(_OPTIONS):
        with_process = add_option(with_process)
    return with_process


def _check_address(address: str, headless: bool, hosts: Hosts) -> None:
    if hosts.only_runs_ranks and not headless:
        raise click.UsageError(f"host {hosts.node_rank} of {hosts.num_nodes} only runs ranks: `sluicegate core` there")
    if not address and not hosts.only_runs_ranks:
        raise click.UsageError("give --handshake-address, or --data-parallel-address and --data-parallel-rpc-port")


def _curve(key: Path | None, gateway_key: Path | None, address: str) -> CurveClient | None:
    if key is None and gateway_key is None:
        return None
    if key is None or gateway_key is None:
        raise click.UsageError("CURVE needs both --curve-key and --curve-gateway-key")
    if not address.startswith("tcp:"):
        raise click.UsageError(f"--curve-key is for a front end at tcp://, got {address!r}")
    try:
        return CurveClient(read_pair(key), read_public(gateway_key))
    except CurveError as error:
        raise click.ClickException(str(error)) from error


def _tcp_address(host: str | None, port: int | None) -> str:
    if host is None or port is None:
        return ""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
