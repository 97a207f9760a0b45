"""Messages over a stream, and its end."""

import threading
from multiprocessing.connection import Pipe
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from core.executor.channel import Channel, as_connection, dial, listen
from core.wire.codec import Encoder, WireError


class Note(msgspec.Struct):
    text: str
    rows: NDArray[np.float32]


def pair() -> tuple[Channel[Note], Channel[Note]]:
    ours, theirs = Pipe()
    return Channel(ours, Note), Channel(theirs, Note)


def test_large_arrays_come_beside_the_message() -> None:
    """And small ones in it; whoever gets them may write into the large ones."""
    ours, theirs = pair()
    for size in (3, 300):
        ours.send(Encoder().encode(Note("x", np.arange(size, dtype=np.float32))))
        note = theirs.receive()
        assert (note.text, note.rows.tolist()) == ("x", list(range(size)))
    note.rows[0] = 7


def test_what_is_no_message_is_told() -> None:
    """By the place in it that is wrong."""
    ours, theirs = pair()
    ours.send(Encoder().encode({"text": 5}))
    with pytest.raises(WireError, match=r"Note\.text: Expected `str`, got `int`"):
        theirs.receive()


def test_hanging_up_ends_a_read_that_waits() -> None:
    """On both sides."""
    ours, theirs = pair()
    ends: list[type[BaseException]] = []

    def read(channel: Channel[Any]) -> None:
        with pytest.raises((EOFError, OSError)) as raised:
            channel.receive()
        ends.append(raised.type)

    readers = [threading.Thread(target=read, args=(channel,)) for channel in (ours, theirs)]
    for reader in readers:
        reader.start()
    ours.hang_up()
    for reader in readers:
        reader.join()
    assert len(ends) == 2


def test_dialling_goes_on_until_somebody_listens() -> None:
    """Or the time is over."""
    with listen("127.0.0.1", 0) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        dial("127.0.0.1", port, timeout_s=0)
    dialled: list[Channel[Note]] = []
    dialling = threading.Thread(
        target=lambda: dialled.append(Channel(as_connection(dial("127.0.0.1", port, 60)), Note))
    )
    dialling.start()
    with listen("127.0.0.1", port) as server:
        Channel(as_connection(server.accept()[0]), Note).send(Encoder().encode(Note("come", np.zeros(0, np.float32))))
    dialling.join()
    assert dialled[0].receive().text == "come"
