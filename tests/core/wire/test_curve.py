"""CURVE keys in files, and handshakes with them."""

import asyncio
import logging
import os
import re
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq.asyncio

from core.wire.curve import CurveClient, CurveError, CurveServer, Doorkeeper, read_pair, read_public, write_pair
from core.wire.handshake import CoreHandshake, HandshakeConfig, HandshakeError, HandshakeServer
from core.wire.messages import EngineAddresses, EngineInit
from tests.core.front_end import PATIENCE_S

ADDRESSES = EngineAddresses(["tcp://127.0.0.1:1"], ["tcp://127.0.0.1:2"])


@pytest.fixture
def server_keys(tmp_path: Path) -> CurveServer:
    """Of a gateway that knows one core."""
    write_pair(tmp_path / "gateway", "gateway")
    write_pair(tmp_path / "cores", "core")
    return CurveServer(read_pair(tmp_path / "gateway/gateway.key_secret"), tmp_path / "cores")


@pytest.fixture
async def server(server_keys: CurveServer) -> AsyncIterator[HandshakeServer]:
    context = zmq.asyncio.Context()
    doorkeeper = Doorkeeper(zmq.Context(context), server_keys)
    server = HandshakeServer(context, "tcp://127.0.0.1:0", ADDRESSES, curve=server_keys)
    yield server
    server.close()
    doorkeeper.stop()
    context.term()


def keys_of(folder: Path, name: str, server_public: bytes) -> CurveClient:
    """Of a core, made if it has none."""
    if not (folder / f"{name}.key").exists():
        write_pair(folder, name)
    return CurveClient(read_pair(folder / f"{name}.key_secret"), server_public)


def greet(address: str, curve: CurveClient | None, timeout_s: float = PATIENCE_S) -> EngineInit:
    with CoreHandshake(HandshakeConfig(address, init_timeout_s=timeout_s, curve=curve)) as handshake:
        init = handshake.greet()
        handshake.say_ready(init.parallel_config)
        return init


async def test_a_known_core(server: HandshakeServer, server_keys: CurveServer, tmp_path: Path) -> None:
    """Whose key the gateway has, and who has the gateway's, is served."""
    curve = keys_of(tmp_path / "cores", "core", server_keys.pair.public)
    _, init = await asyncio.gather(server.run(PATIENCE_S), asyncio.to_thread(greet, server.address, curve))
    assert init.addresses == ADDRESSES


async def test_an_unknown_core(
    server: HandshakeServer, server_keys: CurveServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told so at once, the log has its key, and when its key is put there it is served, without a restart."""
    curve = keys_of(tmp_path / "elsewhere", "stranger", server_keys.pair.public)
    running = asyncio.ensure_future(server.run(PATIENCE_S))
    with pytest.raises(HandshakeError, match=r"refused at tcp://.*: the key of the core is not among those"):
        await asyncio.to_thread(greet, server.address, curve)
    assert f"refused: a peer has the key {curve.pair.public.decode()}, which is not in {tmp_path}/cores" in caplog.text
    (tmp_path / "cores/stranger.key").write_bytes((tmp_path / "elsewhere/stranger.key").read_bytes())
    await asyncio.gather(running, asyncio.to_thread(greet, server.address, curve))


@pytest.mark.parametrize("kind", ["no keys", "another gateway's key"])
async def test_a_core_that_cannot_speak_to_it(
    server: HandshakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """It gets no INIT, and both sides say why."""
    other, _ = write_pair(tmp_path / "other", "gateway")
    curve = None if kind == "no keys" else keys_of(tmp_path / "cores", "core", read_public(other))
    running = asyncio.ensure_future(server.run(PATIENCE_S))
    with pytest.raises(HandshakeError, match=r"no INIT"):
        await asyncio.to_thread(greet, server.address, curve, 1.0)
    running.cancel()
    assert re.search(rf"no connection to {server.address}: .* CURVE keys", caplog.text)
    assert re.search("a peer was refused: .* key", caplog.text)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) <= 4


async def test_a_front_end_without_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A core that has keys does not speak in the clear to one that has none."""
    context = zmq.asyncio.Context()
    server = HandshakeServer(context, "tcp://127.0.0.1:0", ADDRESSES)
    running = asyncio.ensure_future(server.run(PATIENCE_S))
    public, _ = write_pair(tmp_path, "gateway")
    with pytest.raises(HandshakeError, match=r"no INIT"):
        await asyncio.to_thread(greet, server.address, keys_of(tmp_path, "core", read_public(public)), 1.0)
    assert re.search(rf"no connection to {server.address}: .* CURVE keys", caplog.text)
    running.cancel()
    server.close()
    context.destroy(linger=0)


def test_files(tmp_path: Path) -> None:
    """A secret is its owner's alone, is never shown, and no pair is written over."""
    public, secret = write_pair(tmp_path / "new", "a")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    pair = read_pair(secret)
    assert read_public(public) == read_public(secret) == pair.public
    assert pair.secret.decode() not in repr(CurveClient(pair, pair.public))
    with pytest.raises(CurveError, match=r"a.key is there already"):
        write_pair(tmp_path / "new", "a")
    secret.chmod(0o640)
    assert read_pair(secret) == pair
    secret.chmod(0o644)
    with pytest.raises(CurveError, match=r"a.key_secret is open to everyone \(mode 644\): chmod 600"):
        read_pair(secret)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    """What is no key is refused by the name of the file, and nothing of it is said."""
    public, secret = write_pair(tmp_path, "a")
    with pytest.raises(CurveError, match=r"a.key holds no secret key: give the .key_secret"):
        read_pair(public)
    with pytest.raises(CurveError, match=r"none.key holds no CURVE key: "):
        read_public(tmp_path / "none.key")
    (tmp_path / "empty").touch()
    with pytest.raises(CurveError, match=r"empty holds no CURVE key"):
        read_pair(tmp_path / "empty")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CurveError, match=r"pipe is no file"):
        read_pair(tmp_path / "pipe")
    text = secret.read_text()
    secret.write_text(text.replace('secret-key = "', 'secret-key = "12345'))
    with pytest.raises(CurveError, match=r"a.key_secret holds a CURVE key that is none") as raised:
        read_pair(secret)
    assert "12345" not in str(raised.value)


def test_keys_of_clients(server_keys: CurveServer, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder of keys or one file, as they are now; one that is broken is logged, and the others count."""
    core = read_public(tmp_path / "cores/core.key")
    (tmp_path / "cores/broken.key").touch()
    os.mkfifo(tmp_path / "cores/pipe.key")
    assert server_keys.admits(core)
    assert server_keys.admits(server_keys.pair.public)
    assert "broken.key holds no CURVE key" in caplog.text
    (tmp_path / "cores/core.key").rename(tmp_path / "core.key")
    assert not server_keys.admits(core)
    assert CurveServer(server_keys.pair, tmp_path / "core.key").admits(core)


def test_keys_that_cannot_be_looked_at(
    server_keys: CurveServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody is let in by them, and that is all: the next who connects is asked again."""
    nowhere = tmp_path / ("x" * 300)
    assert not CurveServer(server_keys.pair, nowhere).admits(read_public(tmp_path / "cores/core.key"))
    with pytest.raises(CurveError, match=r"cannot read the keys of cores at .*: File name too long"):
        CurveServer(server_keys.pair, nowhere).check_clients()
    assert f"no CURVE keys at {nowhere}: File name too long" in caplog.text
