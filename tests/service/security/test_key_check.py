"""Calls with keys, and without."""

import logging
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from service.config import ListenConfig, SecurityConfig
from tests.service.errors_of_calls import error_of
from tests.service.security.conftest import Serve
from tests.service.security.whoami import WHOAMI, bearer, whoami

KEY, ADMIN_KEY = "a key of alice's".replace(" ", "-"), "admin-0123456789"
LISTEN = ListenConfig(("127.0.0.1:0",), "127.0.0.1:0")


@pytest.fixture
def security(tmp_path: Path) -> SecurityConfig:
    keys, admin_keys = tmp_path / "keys", tmp_path / "admin_keys"
    keys.write_text(f"alice:{KEY}\n")
    admin_keys.write_text(f"root:{ADMIN_KEY}\n")
    return SecurityConfig(api_key_file=keys, admin_key_file=admin_keys)


async def test_whose_key_it_is(serve: Serve, security: SecurityConfig, caplog: pytest.LogCaptureFixture) -> None:
    """A call with a key is answered, and counted and logged under the name beside the key; methods of any kind."""
    caplog.set_level(logging.INFO, "service.access")
    async with serve(LISTEN, security) as served, grpc.aio.insecure_channel(served.grpc_addresses[0]) as channel:
        assert await whoami(channel, bearer(KEY)) == "alice"
        assert await whoami(channel, ("authorization", f"bearer   {KEY}")) == "alice"
        stream = channel.unary_stream(f"/{WHOAMI}/UnaryStream")(b"", metadata=(bearer(KEY),))
        assert [answer async for answer in stream] == [b"alice"]
        (counted,) = [family for family in served.guards.families() if family.name == "sluicegate:calls_by_key"]
        assert [(sample.labels, sample.value) for sample in counted.samples] == [({"key_name": "alice"}, 3)]
    assert caplog.text.count("key_name=alice") == 3
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (bearer("wrong-0123456789"),),
        (bearer(ADMIN_KEY),),
        (bearer(""),),
        (("authorization", KEY),),
        (("authorization", f"Basic {KEY}"),),
        (bearer(KEY), bearer(KEY)),
        (bearer(KEY), bearer("wrong-0123456789")),
        (("x-api-key", KEY),),
    ],
)
async def test_without_a_valid_key(
    serve: Serve, security: SecurityConfig, metadata: tuple[tuple[str, str], ...]
) -> None:
    """Whatever is wrong with the key, the answer is the same: UNAUTHENTICATED, with details and without a hint."""
    async with serve(LISTEN, security) as served, grpc.aio.insecure_channel(served.grpc_addresses[0]) as channel:
        error = await error_of(whoami(channel, *metadata))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")
        assert error.message == "a valid API key is needed, as metadata authorization: Bearer KEY"


async def test_nothing_of_a_refused_call_is_read(serve: Serve, security: SecurityConfig) -> None:
    """A stream without a key ends before its first message; health needs none; what is not there is UNIMPLEMENTED."""
    async with serve(LISTEN, security) as served, grpc.aio.insecure_channel(served.grpc_addresses[0]) as channel:
        stream = channel.stream_stream(f"/{WHOAMI}/StreamStream")(timeout=30)
        assert (await error_of(stream.read())).code is grpc.StatusCode.UNAUTHENTICATED
        assert (await HealthStub(channel).Check(health_pb2.HealthCheckRequest())).status
        missing = channel.unary_unary("/no.such.Service/M")(b"")
        assert (await error_of(missing)).code is grpc.StatusCode.UNIMPLEMENTED


async def test_operators_have_keys_of_their_own(serve: Serve, security: SecurityConfig) -> None:
    """The key of a client opens nothing at the admin address, an operator's does."""
    async with serve(LISTEN, security) as served, grpc.aio.insecure_channel(served.admin_address) as channel:
        assert (await error_of(whoami(channel, bearer(KEY)))).code is grpc.StatusCode.UNAUTHENTICATED
        assert await whoami(channel, bearer(ADMIN_KEY)) == "root"


async def test_keys_are_renewed(serve: Serve, security: SecurityConfig) -> None:
    """A key that was taken out of the file is refused from the next call on, on a connection that is open."""
    async with serve(LISTEN, security) as served, grpc.aio.insecure_channel(served.grpc_addresses[0]) as channel:
        assert await whoami(channel, bearer(KEY)) == "alice"
        assert security.api_key_file is not None
        security.api_key_file.write_text("alice:a-newer-key-0123456789\n")
        assert (await error_of(whoami(channel, bearer(KEY)))).code is grpc.StatusCode.UNAUTHENTICATED
        assert await whoami(channel, bearer("a-newer-key-0123456789")) == "alice"
