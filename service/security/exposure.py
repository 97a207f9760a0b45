"""What a gateway that listens as it is told leaves open to other machines, for the operator to know."""

from collections.abc import Iterator

from service.config import ListenConfig, SecurityConfig, is_local


def exposures(listen: ListenConfig, security: SecurityConfig) -> Iterator[str]:
    """One line each; none if all that others can reach asks for a key over TLS."""
    for address in listen.grpc_addresses:
        if not is_local(address):
            yield from _of_grpc_address(address, security)
    for address in listen.plaintext_addresses:
        if not is_local(address):
            yield f"plaintext_address {address}: other machines can reach it, without TLS and without a key"
    if not is_local(listen.admin_address) and not (security.tls and security.admin_key_file):
        missing = " and ".join(_missing(bool(security.tls), bool(security.admin_key_file)))
        yield f"admin_address {listen.admin_address}: other machines can reach it, {missing}: they can stop the service"


def _of_grpc_address(address: str, security: SecurityConfig) -> Iterator[str]:
    has_tls, has_keys = bool(security.tls), bool(security.api_key_file)
    if has_keys and not has_tls:
        yield f"grpc_address {address}: keys cross the network in the clear, without TLS"
    elif not has_keys and not (security.tls and security.tls.client_ca):
        yield f"grpc_address {address}: other machines can call it, {' and '.join(_missing(has_tls, has_keys))}"


def _missing(has_tls: bool, has_keys: bool) -> Iterator[str]:
    if not has_tls:
        yield "without TLS"
    if not has_keys:
        yield "without a key"
