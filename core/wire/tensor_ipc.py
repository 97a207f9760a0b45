"""Large tensors to another process of this host, past the sockets of the messages: through memory, not through zmq.

    sender                                               receiver
    array ─copy─▶ memfd ──SCM_RIGHTS──▶ channel ─▶ descriptors by handle ─▶ array
      └─ handle in place of the data ──zmq──▶ decoder ─▶ take(handle) ──────────┘

The channel is a pair of sockets that the receiver's process inherits. The memory has no name: no process can be made to
open another's, and whoever dies leaves nothing behind, as the kernel frees it with the last descriptor, also with one
that lies unread in the channel. (Names under /dev/shm would have to be guarded, and swept after a SIGKILL.)

The receiver copies: what it has read, the sender cannot change any more. A mapping would cost a descriptor for as long
as the request lives.
"""

import itertools
import logging
import os
import secrets
import select
import socket
import struct
import time
from typing import Annotated

import msgspec
import numpy as np

logger = logging.getLogger(__name__)

THRESHOLD_BYTES = 1 << 20
"""Smaller tensors travel with their message."""
MAX_TENSOR_BYTES = 1 << 30
TIMEOUT_S = 1.0
"""A sender hands a tensor over before it sends the message that names it: what is not there now hardly comes."""
MAX_TENSOR_ID = 2**63 - 1
_NOTE = struct.Struct("<8sQ")
_SENDER_ID_BYTES = 4


class HandleError(ValueError):
    """A handle that leads to no tensor; the text says why."""


class TensorHandle(msgspec.Struct, forbid_unknown_fields=True):
    """What stands in a message for the data of a tensor. ``tensor_id`` rises from tensor to tensor of one sender."""

    sender_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{8}$")]
    tensor_id: Annotated[int, msgspec.Meta(ge=0, le=MAX_TENSOR_ID)]


def tensor_channel() -> tuple[socket.socket, socket.socket]:
    """The sender's and the receiver's end."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class TensorSender:
    """Never blocks. Owns ``channel``."""

    def __init__(self, channel: socket.socket, threshold_bytes: int = THRESHOLD_BYTES) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._threshold_bytes = threshold_bytes
        self.sender_id = secrets.token_hex(_SENDER_ID_BYTES)
        self._tensor_ids = itertools.count()
        self._works = True

    def hand_over(self, data: memoryview) -> TensorHandle | None:
        """The handle of ``data``, of which the receiver has a copy of its own to take. None: send it in the message.

        That is so for small data, and when there is no memory, no descriptor or no room in the channel.
        """
        if not self._threshold_bytes <= data.nbytes <= MAX_TENSOR_BYTES:
            return None
        handle = TensorHandle(self.sender_id, next(self._tensor_ids))
        try:
            self._send(handle, data)
        except OSError as error:
            self._report(works=False, cause=error)
            return None
        self._report(works=True)
        return handle

    def close(self) -> None:
        self._channel.close()

    def _send(self, handle: TensorHandle, data: memoryview) -> None:
        memory = os.memfd_create("sluicegate-tensor", os.MFD_CLOEXEC)
        try:
            _write_all(memory, data)
            note = _NOTE.pack(handle.sender_id.encode(), handle.tensor_id)
            socket.send_fds(self._channel, [note], [memory])
        finally:
            os.close(memory)

    def _report(self, works: bool, cause: OSError | None = None) -> None:
        """Once when it fails, not for each tensor until it works again."""
        if self._works and not works:
            logger.warning("no shared memory for a tensor, it goes with its message: %s", cause)
        self._works = works


class TensorReceiver:
    """Takes tensors by their handles, in the order in which they were sent. Owns ``channel``; one thread's own."""

    def __init__(self, channel: socket.socket, timeout_s: float = TIMEOUT_S) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._timeout_s = timeout_s
        self._sender_id = ""
        self._sender_is_gone = False
        self._next_id = 0
        self._memories: dict[int, int | None] = {}

    def __repr__(self) -> str:
        return f"TensorReceiver({len(self._memories)} tensors not taken)"

    def take(self, handle: object, num_bytes: int) -> memoryview:
        """The ``num_bytes`` that ``handle`` stands for. What was sent before it can no longer be taken.

        Raises HandleError for what is no handle, or stands for nothing or for another number of bytes, at the latest
        after ``timeout_s``.
        """
        wanted = _read_handle(handle)
        if not 0 < num_bytes <= MAX_TENSOR_BYTES:
            raise HandleError(f"must have 1 to {MAX_TENSOR_BYTES} bytes to be handed over, got {num_bytes}")
        memory = self._find(wanted)
        try:
            return _read_all(memory, num_bytes)
        finally:
            os.close(memory)

    def close(self) -> None:
        self._forget_before(MAX_TENSOR_ID + 1)
        self._channel.close()

    def _find(self, wanted: TensorHandle) -> int:
        deadline = time.monotonic() + self._timeout_s
        while not self._has_come(wanted):
            self._wait(deadline)
        self._forget_before(wanted.tensor_id)
        memory = self._memories.pop(wanted.tensor_id)
        self._next_id = wanted.tensor_id + 1
        if memory is None:
            raise HandleError("was handed over, but there was no descriptor left to take it")
        return memory

    def _has_come(self, wanted: TensorHandle) -> bool:
        """Raises HandleError if it is there no more, or never will be: tensors come in the order of their ids."""
        while self._receive():
            pass
        if self._sender_id and wanted.sender_id != self._sender_id:
            raise HandleError(f"is of sender {wanted.sender_id}, the sender here is {self._sender_id}")
        if wanted.tensor_id in self._memories:
            return True
        if wanted.tensor_id < max(self._memories, default=self._next_id - 1) or wanted.tensor_id < self._next_id:
            raise HandleError(f"tensor {wanted.tensor_id} was taken or dropped, or never handed over")
        if self._sender_is_gone:
            raise HandleError("was not handed over, and the sender is gone")
        return False

    def _receive(self) -> bool:
        """Whether there was one more."""
        try:
            note, memories, _, _ = socket.recv_fds(self._channel, _NOTE.size, 1, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return False
        except OSError as error:
            raise HandleError(f"cannot be received: {error}") from error
        if len(note) != _NOTE.size:
            self._sender_is_gone = True
            return False
        sender_id, tensor_id = _NOTE.unpack(note)
        self._sender_id = sender_id.decode()
        self._memories[tensor_id] = memories[0] if memories else None
        return True

    def _wait(self, deadline: float) -> None:
        """Return when something has come. Raises HandleError if nothing does."""
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([self._channel], [], [], remaining_s)[0]:
            raise HandleError(f"was not handed over within {self._timeout_s:g} s")

    def _forget_before(self, tensor_id: int) -> None:
        """Close what no message has named: its request was refused before its tensor was looked for."""
        for stale_id in [known for known in self._memories if known < tensor_id]:
            memory = self._memories.pop(stale_id)
            if memory is not None:
                os.close(memory)


def _read_handle(value: object) -> TensorHandle:
    try:
        return msgspec.convert(value, TensorHandle)
    except msgspec.ValidationError as error:
        raise HandleError(f"is no handle of a tensor: {error}") from error


def _write_all(memory: int, data: memoryview) -> None:
    num_written = 0
    while num_written < data.nbytes:
        num_written += os.write(memory, data[num_written:])


def _read_all(memory: int, num_bytes: int) -> memoryview:
    size = os.fstat(memory).st_size
    if size != num_bytes:
        raise HandleError(f"has {size} bytes, its shape needs {num_bytes}")
    data = np.empty(num_bytes, np.uint8).data
    num_read = 0
    while num_read < num_bytes:
        count = os.preadv(memory, [data[num_read:]], num_read)
        if not count:
            raise HandleError(f"has {num_read} bytes, its shape needs {num_bytes}")
        num_read += count
    return data
