"""What is logged, and how."""

from dataclasses import dataclass

import click

from core.wire.log_lines import LogFormat
from service.cli.option_group import OptionGroup


@dataclass(frozen=True)
class Logs:
    """As ``service.logs.configure_logging`` takes them."""

    log_level: str
    log_format: LogFormat
    access_log: bool

    @property
    def flags(self) -> tuple[str, str]:
        """For a process that logs in the same way."""
        return f"--log-level={self.log_level}", f"--log-format={self.log_format}"

    @property
    def gateway_flags(self) -> tuple[str, ...]:
        """For another process of the gateway."""
        return *self.flags, "--access-log" if self.access_log else "--no-access-log"


_OPTIONS = [
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        help="Least severe records to log.",
    ),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of a log line."),
    click.option(
        "--access-log/--no-access-log", default=False, help="Log a line for each call that ended, but of health checks."
    ),
]

LOGS = OptionGroup("logs", "Log", _OPTIONS, Logs)
