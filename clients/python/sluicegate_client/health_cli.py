"""The command `sluicegate health`, which probes run: every few seconds, so that little is imported."""

import click
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from sluicegate_client.access import API_KEY_VARIABLE, Access, access_options
from sluicegate_client.address import address_option
from sluicegate_client.channel import key_metadata, open_channel
from sluicegate_client.errors import SluicegateError, readable_errors
from sluicegate_client.readiness import Deadline


@click.command()
@address_option
@click.option("--service", default="readiness", show_default=True, help="What to ask for: liveness, or any service.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="No answer in this time is a failure.",
)
@access_options(API_KEY_VARIABLE)
def health(address: str, service: str, timeout: float, access: Access) -> None:
    """Ask a server whether it serves: a probe for containers.

    Exit code: 0 when it says SERVING, 1 when it says anything else or nothing, which one line tells.
    """
    try:
        status = _status(address, access, service, timeout)
    except SluicegateError as error:
        raise click.ClickException(f"{service}: {error}") from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if status != "SERVING":
        raise click.ClickException(f"{service}: {status}")
    click.echo(f"{service}: {status}")


def _status(address: str, access: Access, service: str, timeout_s: float) -> str:
    with open_channel(address, access.credentials) as channel, readable_errors(address):
        request, metadata = HealthCheckRequest(service=service), key_metadata(access.api_key)
        answer = HealthStub(channel).Check(request, timeout=Deadline(timeout_s).remaining_s, metadata=metadata)
        return str(HealthCheckResponse.ServingStatus.Name(answer.status))
