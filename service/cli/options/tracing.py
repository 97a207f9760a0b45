"""Where spans go."""

import click

from service.cli.option_group import OptionGroup
from service.config import TracingConfig

_OPTIONS = [
    click.option(
        "--otlp-traces-endpoint",
        default="",
        envvar=["SLUICEGATE_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"],
        metavar="URL",
        help="Collector of OTLP over gRPC, http://HOST:4317, for a span of each call. Default: none are made.",
    ),
]


def _read(otlp_traces_endpoint: str) -> TracingConfig:
    return TracingConfig(otlp_traces_endpoint)


TRACING = OptionGroup("tracing", "Traces", _OPTIONS, _read)
