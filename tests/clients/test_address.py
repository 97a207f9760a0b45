"""An address on the command line."""

import click
import pytest

from sluicegate_client.address import Address


@pytest.mark.parametrize(
    "value",
    [
        "127.0.0.1:50051",
        "[::1]:50051",
        "gateway:1",
        "unix:/tmp/socket",
        "unix:socket",
        "dns:///gateway:1",
        "ipv4:10.0.0.1:1,10.0.0.2:1",
        "ipv6:[::1]:1",
    ],
)
def test_what_grpc_can_dial_is_taken(value: str) -> None:
    """As it is."""
    assert Address().convert(value, None, None) == value


@pytest.mark.parametrize(
    "value",
    [
        "127.0.0.1",
        "",
        ":50051",
        "50051",
        "http://127.0.0.1:50051",
        "localhost:http",
        "dns:///gateway",
        "dns://gateway:1",
        "ipv4:10.0.0.1:1,10.0.0.2",
        "127.0.0.1:65536",
        "127.0.0.1:\u0661",
    ],
)
def test_what_it_would_dial_elsewhere_is_refused(value: str) -> None:
    """Without a port it would be 443, a URL would be a host."""
    with pytest.raises(click.BadParameter, match=r"must be HOST:PORT, unix:/path or dns:///HOST:PORT, got"):
        Address().convert(value, None, None)


def test_bytes_that_are_no_text() -> None:
    """Are refused before gRPC would fail at them."""
    with pytest.raises(click.BadParameter, match="must be text, got"):
        Address().convert("\udcff:1", None, None)
