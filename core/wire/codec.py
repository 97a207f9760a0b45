"""Msgpack with arrays kept out of band, exactly as vLLM's serial_utils lays it out.

One message is a list of frames: the msgpack document, then the raw memory of every array too large to sit inside it.
An array is ``[dtype, shape, data]``: ``data`` is extension 3 (raw bytes, inline) or the index of its own frame.
Extensions 1 and 2 (pickle, cloudpickle) are refused, always.

Encoders and decoders are not thread-safe: each thread owns its own.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from core.wire.place import name_place
from core.wire.tensor import Tensor, storage_dtype
from core.wire.tensor_ipc import TensorReceiver, TensorSender

Frame = bytes | bytearray | memoryview
T = TypeVar("T")

INLINE_BELOW_BYTES = 256
"""Arrays smaller than this travel inside the document (vLLM's VLLM_MSGPACK_ZERO_COPY_THRESHOLD)."""
RAW_VIEW = 3
MAX_DIMENSIONS = 64
"""Of an array (numpy's own bound)."""
MAX_ERROR_CHARS = 500
"""Errors quote what was received, which may be of any length."""
_PICKLES = {1: "pickle", 2: "cloudpickle"}
# Numbers and booleans only: numpy reads a whole language here, of which it evaluates some as Python.
_ARRAY_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c8|c16)")


class WireError(Exception):
    """A message that does not decode. The text names the place in the message and what is wrong there."""


class Encoder:
    """Turns one message into its frames. The array frames are views: they must outlive the send.

    ``tensors`` takes those tensors that it will; a handle stands in the document for each.
    """

    def __init__(self, tensors: TensorSender | None = None) -> None:
        self._tensors = tensors
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._encode_custom)
        self._frames: list[Frame] = []

    def encode(self, message: object) -> list[Frame]:
        """The frames of ``message``. Raises TypeError for an object the wire has no form for."""
        return self.encode_into(message, bytearray())

    def encode_into(self, message: object, buffer: bytearray) -> list[Frame]:
        """As ``encode``, the document written over ``buffer`` so that its memory is used again."""
        frames: list[Frame] = [buffer]
        self._frames = frames
        try:
            self._encoder.encode_into(message, buffer)
        finally:
            self._frames = []
        return frames

    def _encode_custom(self, value: object) -> object:
        if isinstance(value, np.ndarray):
            return self._encode_array(value.dtype.str, value)
        if isinstance(value, Tensor):
            return self._encode_array(value.dtype, value.array, self._tensors)
        raise TypeError(f"objects of type {type(value).__name__} cannot be sent")

    def _encode_array(
        self, dtype: str, array: NDArray[Any], tensors: TensorSender | None = None
    ) -> tuple[str, tuple[int, ...], object]:
        if array.dtype.hasobject:
            raise TypeError("arrays of objects cannot be sent")
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        if array.ndim == 0 or data.nbytes < INLINE_BELOW_BYTES:
            return dtype, array.shape, msgspec.msgpack.Ext(RAW_VIEW, data)
        if tensors is not None and (handle := tensors.hand_over(data)) is not None:
            return dtype, array.shape, handle
        self._frames.append(data)
        return dtype, array.shape, len(self._frames) - 1


class Decoder(Generic[T]):
    """Turns frames back into a message of one type. Arrays are views of the frames and keep them alive.

    ``name`` stands for the message in errors; the type's own name unless given. ``tensors`` has those that come by
    handle.
    """

    def __init__(self, message_type: type[T], name: str | None = None, tensors: TensorReceiver | None = None) -> None:
        self._tensors = tensors
        self._type = message_type
        self._name = name or message_type.__name__
        self._decoder = msgspec.msgpack.Decoder(message_type, dec_hook=self._decode_custom, ext_hook=_decode_extension)
        self._frames: Sequence[Frame] = ()

    def decode(self, frames: Sequence[Frame]) -> T:
        """The message in ``frames``: the document, then its array frames. Raises WireError, and nothing else."""
        if not frames:
            raise WireError(f"{self._name}: no frame")
        self._frames = frames
        try:
            return self._decoder.decode(frames[0])
        except (msgspec.DecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise WireError(name_place(self._name, self._type, str(error))[:MAX_ERROR_CHARS]) from error
        finally:
            self._frames = ()

    def _decode_custom(self, expected: type, value: Any) -> object:
        expected = getattr(expected, "__origin__", expected)
        if expected is np.ndarray:
            return self._decode_array(value, _array_dtype)
        if expected is Tensor:
            return Tensor(self._decode_array(value, storage_dtype, self._tensors), value[0])
        raise TypeError(f"no decoding for {expected}")

    def _decode_array(
        self, value: Any, to_dtype: Callable[[str], np.dtype[Any]], tensors: TensorReceiver | None = None
    ) -> NDArray[Any]:
        name, shape, data = _checked_array_head(value)
        dtype = to_dtype(name)
        expected_bytes = math.prod(shape) * dtype.itemsize
        if isinstance(data, dict) and tensors is not None:
            raw = tensors.take(data, expected_bytes)
        else:
            raw = self._array_bytes(data)
        if len(raw) != expected_bytes:
            raise ValueError(f"array {name}{shape} needs {expected_bytes} bytes, got {len(raw)}")
        return np.frombuffer(raw, dtype=dtype).reshape(shape)

    def _array_bytes(self, data: object) -> memoryview:
        if isinstance(data, memoryview):
            return data
        if not isinstance(data, int) or not 1 <= data < len(self._frames):
            bound = f"[1, {len(self._frames) - 1}]"
            what = "a handle, but no tensors are handed over" if isinstance(data, dict) else repr(data)
            raise ValueError(f"array data must be extension 3 or a frame index in {bound}, got {what}")
        return memoryview(self._frames[data]).cast("B")


def _array_dtype(name: str) -> np.dtype[Any]:
    if not _ARRAY_DTYPE.fullmatch(name):
        raise ValueError(f"array dtype must be a number or boolean such as '<f4', got {name!r}")
    return np.dtype(name)


def _checked_array_head(value: Any) -> tuple[str, list[int], Any]:
    """``value`` as (dtype, shape, data), or ValueError."""
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError("an array must be [dtype, shape, data]")
    name, shape, data = value
    if not isinstance(name, str):
        raise ValueError(f"array dtype must be a string, got {name!r}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"array shape must be a list of at most {MAX_DIMENSIONS} sizes")
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ValueError(f"array sizes must be integers >= 0, got {shape!r}")
    return name, shape, data


def _decode_extension(code: int, data: memoryview) -> memoryview:
    if code == RAW_VIEW:
        return data
    raise ValueError(f"extension {code} ({_PICKLES.get(code, 'unknown')}) is refused")
