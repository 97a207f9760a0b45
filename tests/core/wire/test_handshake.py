"""Both sides of the handshake, against each other and against what must not be said."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from core.wire.handshake import CoreHandshake, HandshakeConfig, HandshakeError, HandshakeServer, engine_identity
from core.wire.messages import EngineAddresses, EngineHello, EngineInit, ParallelConfig
from tests.core.front_end import PATIENCE_S, FrontEnd
from tests.core.wire.recorded import recording

ADDRESSES = EngineAddresses(["ipc:///tmp/in"], ["ipc:///tmp/out"])


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    context = zmq.asyncio.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture(params=["ipc", "tcp"])
async def server(request: Any, tmp_path: Path, context: zmq.asyncio.Context) -> AsyncIterator[HandshakeServer]:
    address = f"ipc://{tmp_path}/handshake" if request.param == "ipc" else "tcp://127.0.0.1:0"
    server = HandshakeServer(context, address, ADDRESSES)
    yield server
    server.close()
    server.close()


def core_life(address: str, rank: int = 0, local: bool = False) -> EngineAddresses:
    """A core that loads nothing: HELLO to READY."""
    with CoreHandshake(HandshakeConfig(address, rank, local, PATIENCE_S)) as handshake:
        init = handshake.greet()
        handshake.say_ready(init.parallel_config)
        return init.addresses


async def say(
    context: zmq.asyncio.Context, address: str, *hellos: EngineHello | bytes, rank: int = 0
) -> zmq.asyncio.Socket:
    """Send ``hellos`` as the core of ``rank``."""
    socket = context.socket(zmq.DEALER)
    socket.identity = engine_identity(rank)
    socket.connect(address)
    for hello in hellos:
        await socket.send(hello if isinstance(hello, bytes) else msgspec.msgpack.encode(hello))
    return socket


async def test_both_sides(server: HandshakeServer) -> None:
    """The server is done when the core is READY; the core has the addresses."""
    _, addresses = await asyncio.gather(server.run(PATIENCE_S), asyncio.to_thread(core_life, server.address))
    assert addresses == ADDRESSES


async def test_a_restarted_core_is_welcomed(server: HandshakeServer) -> None:
    """The same server takes a second core of the same rank, after the first one and in its place."""
    for _ in range(2):
        await asyncio.gather(server.run(PATIENCE_S), asyncio.to_thread(core_life, server.address))


async def test_a_core_that_died_loading_may_begin_again(server: HandshakeServer, context: zmq.asyncio.Context) -> None:
    """A second HELLO starts over: READY counts for the core that says it."""
    run = asyncio.create_task(server.run(PATIENCE_S))
    first = await say(context, server.address, EngineHello("HELLO", False, True))
    await first.recv_multipart()
    first.close()
    await asyncio.to_thread(core_life, server.address)
    await run


async def test_init_equals_the_genuine_one(context: zmq.asyncio.Context, tmp_path: Path) -> None:
    """INIT has the bytes of the genuine Python front end's."""
    recorded = recording("py_init")
    addresses = msgspec.convert(recorded.decoded[0]["addresses"], EngineAddresses)
    server = HandshakeServer(context, f"ipc://{tmp_path}/handshake", addresses)
    run = asyncio.create_task(server.run(PATIENCE_S))
    core = await say(context, server.address, *recording("core_hello").frames)
    assert await core.recv_multipart() == recorded.frames
    await core.send_multipart(recording("core_ready").frames)
    await run


async def test_several_engines(context: zmq.asyncio.Context, tmp_path: Path) -> None:
    """All ranks must be READY, the local ones first in number and saying so."""
    server = HandshakeServer(context, f"ipc://{tmp_path}/handshake", ADDRESSES, num_engines=3, num_local_engines=1)
    lives = [asyncio.to_thread(core_life, server.address, rank, rank == 0) for rank in range(3)]
    await asyncio.gather(server.run(PATIENCE_S), *lives)


GROUP = ParallelConfig("10.0.0.1", data_parallel_master_port_list=[29500, 29501], data_parallel_size=2)


async def test_a_group_is_told_who_it_is(context: zmq.asyncio.Context, tmp_path: Path) -> None:
    """INIT tells every engine of its data-parallel group, as vLLM spells it; READY says the group's hash back."""
    server = HandshakeServer(context, f"ipc://{tmp_path}/handshake", ADDRESSES, num_engines=2, parallel_config=GROUP)
    run = asyncio.create_task(server.run(PATIENCE_S))
    cores = [await say(context, server.address, HELLO, rank=rank) for rank in range(2)]
    for core in cores:
        (payload,) = await core.recv_multipart()
        assert msgspec.msgpack.decode(payload, type=EngineInit).parallel_config == GROUP
        assert msgspec.msgpack.decode(payload)["parallel_config"] == {
            "data_parallel_master_ip": "10.0.0.1",
            "_data_parallel_master_port_list": [29500, 29501],
            "data_parallel_size": 2,
        }
        await core.send(msgspec.msgpack.encode(EngineHello("READY", False, True, GROUP.hash)))
    await run


async def test_engines_of_different_groups(context: zmq.asyncio.Context, tmp_path: Path) -> None:
    """Engines that were told different things cannot step together: the handshake fails at once, naming one."""
    server = HandshakeServer(context, f"ipc://{tmp_path}/handshake", ADDRESSES, num_engines=2)
    run = asyncio.create_task(server.run(PATIENCE_S))
    for rank in range(2):
        core = await say(context, server.address, HELLO, rank=rank)
        await core.recv_multipart()
        await core.send(msgspec.msgpack.encode(EngineHello("READY", False, True, f"hash of {rank}")))
    with pytest.raises(HandshakeError, match=r"engine . is of another data-parallel group: .*hash of ., .*hash of ."):
        await run


def test_a_group_has_a_hash() -> None:
    """Groups told the same have the same hash, others another one, and a core that is alone has none."""
    same = msgspec.structs.replace(GROUP)
    other = msgspec.structs.replace(GROUP, data_parallel_master_port_list=[29500])
    assert GROUP.hash == same.hash != other.hash
    assert ParallelConfig().hash is None


HELLO = EngineHello("HELLO", local=False, headless=True)


@pytest.mark.parametrize(
    ("hellos", "rank", "words"),
    [
        ([HELLO], 1, "unknown engine identity 0100, expected ranks 0..0"),
        ([EngineHello("HELLO", local=True, headless=False)], 0, "engine 0 must be headless, it says local=True"),
        ([EngineHello("HELLO", local=False, headless=False)], 0, "engine 0 must be headless"),
        ([EngineHello("READY", local=False, headless=True)], 0, "said nothing and now 'READY'"),
        ([EngineHello("HI", local=False, headless=True)], 0, "said nothing and now 'HI'"),
        ([HELLO, EngineHello("BYE", local=False, headless=True)], 0, "said HELLO but not READY and now 'BYE'"),
        ([b"\xc1"], 0, "EngineHello: MessagePack data is malformed"),
        ([msgspec.msgpack.encode({"status": 7})], 0, "EngineHello.status: "),
        ([HELLO, EngineHello("x" * 10_000, local=False, headless=True)], 0, "and now 'xxx"),
    ],
)
async def test_what_an_engine_must_not_say_is_ignored(
    server: HandshakeServer, context: zmq.asyncio.Context, hellos: list[Any], rank: int, words: str
) -> None:
    """A wrong identity, flag, order or message is logged, and the right core that comes after it is welcomed."""
    with HandshakeLog() as log:
        run = asyncio.create_task(server.run(PATIENCE_S))
        await say(context, server.address, *hellos, rank=rank)
        warning = await asyncio.wait_for(log.warnings.get(), PATIENCE_S)
        await asyncio.to_thread(core_life, server.address)
        await run
    assert words in warning
    assert len(warning) < 600


class HandshakeLog(logging.Handler):
    """The warnings of the handshake, to be awaited."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.warnings: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.warnings.put_nowait(record.getMessage())

    def __enter__(self) -> "HandshakeLog":
        logging.getLogger("core.wire.handshake").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("core.wire.handshake").removeHandler(self)


async def test_what_was_ignored_last_is_in_the_error(context: zmq.asyncio.Context, tmp_path: Path) -> None:
    """A headless core where a child is expected: nobody else comes, and the error says why that one did not count."""
    server = HandshakeServer(context, f"ipc://{tmp_path}/handshake", ADDRESSES, num_local_engines=1)
    await say(context, server.address, b"\xc1", HELLO)
    with pytest.raises(HandshakeError) as caught:
        await server.run(1)
    ignored = "ignored last: engine 0 must be local, it says local=False, headless=True"
    assert str(caught.value) == f"not ready within 1 s: engine 0 said nothing; {ignored}"


async def test_nobody_comes(server: HandshakeServer) -> None:
    """Without a core the server gives up in time and says who is missing."""
    with pytest.raises(HandshakeError, match=r"not ready within 0\.05 s: engine 0 said nothing"):
        await server.run(0.05)


async def test_never_ready(server: HandshakeServer, context: zmq.asyncio.Context) -> None:
    """A core that greets and then hangs is named with how far it has come."""
    run = asyncio.create_task(server.run(1))
    core = await say(context, server.address, HELLO)
    await core.recv_multipart()
    with pytest.raises(HandshakeError, match="engine 0 said HELLO but not READY"):
        await run


async def test_address_in_use(context: zmq.asyncio.Context) -> None:
    """Two servers cannot listen at one port, and the second says so at once."""
    first = HandshakeServer(context, "tcp://127.0.0.1:0", ADDRESSES)
    with pytest.raises(HandshakeError, match="cannot listen at tcp://127"):
        HandshakeServer(context, first.address, ADDRESSES)


def test_core_without_front_end(tmp_path: Path) -> None:
    """A core that gets no INIT gives up in time and names whom it dialled."""
    with (
        CoreHandshake(HandshakeConfig(f"ipc://{tmp_path}/nobody", init_timeout_s=0.05)) as handshake,
        pytest.raises(HandshakeError, match=r"no INIT from ipc://.*/nobody within 0\.05 s"),
    ):
        handshake.greet()


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xc1", "INIT does not decode: EngineInit: MessagePack data is malformed"),
        (msgspec.msgpack.encode({"addresses": {"inputs": "x", "outputs": []}}), "EngineInit.addresses.inputs: "),
        (msgspec.msgpack.encode({"addresses": {"inputs": [], "outputs": []}}), "as many inputs as outputs"),
        (msgspec.msgpack.encode({"addresses": {"inputs": ["ipc://a"], "outputs": []}}), "as many inputs as outputs"),
        (
            msgspec.msgpack.encode(
                {"addresses": {"inputs": ["a"], "outputs": ["b"]}, "parallel_config": {"data_parallel_size": "2"}}
            ),
            "EngineInit.parallel_config.data_parallel_size: ",
        ),
    ],
)
async def test_unusable_init(tmp_path: Path, payload: bytes, words: str) -> None:
    """An INIT without usable addresses is an error that says what it lacks."""
    with FrontEnd(tmp_path) as front_end, CoreHandshake(HandshakeConfig(front_end.address)) as handshake:
        greeting = asyncio.create_task(asyncio.to_thread(handshake.greet))
        await asyncio.to_thread(front_end.receive_hello)
        front_end.handshake.send_multipart([front_end.identity, payload])
        with pytest.raises(HandshakeError) as caught:
            await greeting
        assert words in str(caught.value)


def test_identity_is_little_endian() -> None:
    """The identity of a rank is two bytes, the low one first."""
    assert (engine_identity(0), engine_identity(1), engine_identity(258)) == (b"\x00\x00", b"\x01\x00", b"\x02\x01")


async def test_an_engine_that_comes_anew(server: HandshakeServer) -> None:
    """After all are ready a HELLO is told of first and answered then: its place can be prepared."""
    await asyncio.gather(server.run(PATIENCE_S), asyncio.to_thread(core_life, server.address))
    successors = server.successors()
    life = asyncio.ensure_future(asyncio.to_thread(core_life, server.address))
    assert await asyncio.wait_for(anext(successors), PATIENCE_S) == 0
    assert not life.done()
    next_one = asyncio.ensure_future(anext(successors))
    assert await life == ADDRESSES
    next_one.cancel()
