"""How the channels of both clients are set up."""

from collections.abc import Sequence
from typing import Any

ChannelOptions = Sequence[tuple[str, Any]]

DEFAULT_ADDRESS = "127.0.0.1:50051"

_OPTIONS: ChannelOptions = (
    # gRPC would send even loopback traffic through an http_proxy of the environment.
    ("grpc.enable_http_proxy", 0),
    # Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
    ("grpc.max_receive_message_length", -1),
)


def channel_options(given: ChannelOptions) -> ChannelOptions:
    """``given`` wins over the defaults."""
    return [*(dict(_OPTIONS) | dict(given)).items()]
