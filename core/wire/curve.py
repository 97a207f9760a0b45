"""CURVE: the wire over a network, encrypted, between peers that know each other's keys.

    gateway, coordinator: CURVE server             core: CURVE client
    own pair, public keys of the cores it lets in  own pair, public key of the gateway

Keys are files as pyzmq writes them: NAME.key_secret holds a pair, NAME.key its public half alone. Genuine engines and
front ends know no CURVE: a connection where only one side has keys comes to nothing, and both say why.
"""

import asyncio
import logging
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio
from zmq.auth.certs import create_certificates, load_certificate
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

logger = logging.getLogger(__name__)

_Z85_KEY = re.compile(rb"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_LOG_INTERVAL_S = 5.0
"""Who is refused tries again at once."""
HANDSHAKE_FAILURES = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


_HUNG_UP = "the other side hung up: has it other CURVE keys, or has only one side any?"
"""Who sees what is wrong hangs up, and which side that is, is chance: the other learns nothing more."""
_PROTOCOL_ERRORS: dict[int, str] = {
    zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: "one of gateway and core has CURVE keys, the other has none",
    zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC: "the core takes another key for the gateway's",
}


class CurveError(Exception):
    """A file of keys that cannot be used; the text names it and holds nothing of what is in it."""


@dataclass(frozen=True)
class CurvePair:
    """Keys as text, in Z85."""

    public: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class CurveClient:
    """A core, or whoever else connects."""

    pair: CurvePair
    server_public: bytes

    def protect(self, socket: "zmq.Socket[Any]") -> None:
        """To be done before it connects."""
        socket.curve_publickey = self.pair.public
        socket.curve_secretkey = self.pair.secret
        socket.curve_serverkey = self.server_public


@dataclass(frozen=True)
class CurveServer:
    """Whoever binds. ``clients`` is a folder of public keys, read anew for each that connects, or one file."""

    pair: CurvePair
    clients: Path

    def protect(self, socket: "zmq.Socket[Any]") -> None:
        """To be done before it binds, in a context that ``Doorkeeper`` keeps."""
        socket.curve_secretkey = self.pair.secret
        socket.curve_server = True

    def check_clients(self) -> None:
        """Raises CurveError if there is no place for their keys: an empty one may be filled later."""
        try:
            self.clients.stat()
        except OSError as error:
            raise CurveError(f"cannot read the keys of cores at {self.clients}: {error.strerror}") from error

    def admits(self, public: bytes) -> bool:
        """Whether it is the key of a client, or its own: the gateway is the coordinator's client."""
        return public == self.pair.public or public in _public_keys_at(self.clients)

    @property
    def itself_as_client(self) -> CurveClient:
        return CurveClient(self.pair, self.pair.public)


class Doorkeeper:
    """Asked by zmq about every client of ``server`` that connects to a socket of ``context``, until ``stop``."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", server: CurveServer) -> None:
        self._server = server
        self._refusals = RareLog()
        # A context of its own class: the thread makes the sockets of its event loop from it.
        self._authenticator = ThreadAuthenticator(zmq.Context(context))
        self._authenticator.configure_curve_callback(credentials_provider=self)
        self._authenticator.start()

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002
        """As pyzmq calls it, in a thread of its own."""
        is_admitted = self._server.admits(key)
        if not is_admitted:
            self._refusals.warning(
                f"refused: a peer has the key {key.decode()}, which is not in {self._server.clients}"
            )
        return is_admitted

    def stop(self) -> None:
        """To be done before the context ends."""
        self._authenticator.stop()


class RareLog:
    """One warning in a while, of many that are alike."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def warning(self, text: str) -> None:
        """Log ``text`` unless there was one just now."""
        if (now := time.monotonic()) >= self._next_at:
            self._next_at = now + _LOG_INTERVAL_S
            logger.warning("%s", text)


class Refusals:
    """Connections that come to nothing, logged: an engine without a key says nothing that could be ignored."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self._socket = socket
        self._monitor = socket.get_monitor_socket(HANDSHAKE_FAILURES)
        self._logging = asyncio.ensure_future(self._log())

    def close(self) -> None:
        """To be done before the socket closes. May be called twice."""
        if not self._monitor.closed:
            self._logging.cancel()
            self._socket.disable_monitor()
            self._monitor.close(linger=0)

    async def _log(self) -> None:
        log = RareLog()
        while True:
            event = await self._monitor.recv_multipart()
            log.warning(f"a peer was refused: {failure_text(event)}")


def is_final(monitor_message: list[bytes]) -> bool:
    """zmq does not try again: the key is known, and refused."""
    return bool(parse_monitor_message(monitor_message)["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH)


def failure_text(monitor_message: list[bytes]) -> str:
    """What an event of ``HANDSHAKE_FAILURES`` says, for people on either side."""
    event = parse_monitor_message(monitor_message)
    if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        return "the key of the core is not among those that the gateway lets in"
    return _PROTOCOL_ERRORS.get(int(event["value"]), _HUNG_UP)


def read_pair(path: Path) -> CurvePair:
    """Raises CurveError, also where others than owner and group may read it."""
    public, secret = _read(path)
    if secret is None:
        raise CurveError(f"{path} holds no secret key: give the .key_secret")
    try:
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        raise CurveError(f"{path} is gone: {error.strerror}") from error
    if mode & 0o007:
        raise CurveError(f"{path} is open to everyone (mode {mode:o}): chmod 600")
    return CurvePair(public, secret)


def read_public(path: Path) -> bytes:
    """Raises CurveError."""
    return _read(path)[0]


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a pair: the paths of its public and its secret file, this one for its owner alone. Raises CurveError."""
    paths = folder / f"{name}.key", folder / f"{name}.key_secret"
    if existing := [path for path in paths if path.exists()]:
        raise CurveError(f"{existing[0]} is there already")
    before = os.umask(0o077)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        create_certificates(folder, name)
    except OSError as error:
        raise CurveError(f"cannot write into {folder}: {error.strerror}") from error
    finally:
        os.umask(before)
    return paths


def _read(path: Path) -> tuple[bytes, bytes | None]:
    try:
        if path.exists() and not path.is_file():
            raise CurveError(f"{path} is no file")  # Who opens a pipe may wait for ever.
        public, secret = load_certificate(path)
    except (OSError, ValueError) as error:
        raise CurveError(f"{path} holds no CURVE key: {error}") from error
    if not all(_Z85_KEY.fullmatch(key) for key in (public, secret) if key is not None):
        raise CurveError(f"{path} holds a CURVE key that is none: 40 characters of Z85")
    return public, secret


def _public_keys_at(path: Path) -> set[bytes]:
    """Without those of files that cannot be read, which are logged."""
    keys = set()
    for file in _key_files_at(path):
        try:
            keys.add(read_public(file))
        except CurveError as error:
            logger.warning("%s", error)
    return keys


def _key_files_at(path: Path) -> list[Path]:
    """None of what cannot be looked at: whoever asks does so for every peer, and must live on."""
    try:
        return sorted(path.glob("*.key")) if path.is_dir() else [path]
    except OSError as error:
        logger.warning("no CURVE keys at %s: %s", path, error.strerror)
        return []
