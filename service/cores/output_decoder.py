"""Decoding of the core's output messages, where one request's broken output costs the others nothing."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from core.wire.codec import Frame, WireError
from core.wire.messages import EngineCoreOutputs
from core.wire.version import WireVersion, decoder_of_output, decoder_of_outputs

logger = logging.getLogger(__name__)


class _Envelope(msgspec.Struct, array_like=True):
    """An EngineCoreOutputs of which only whose it is and the list of outputs is looked at, each output undecoded."""

    engine_index: Any
    outputs: list[msgspec.Raw]


class _Head(msgspec.Struct, array_like=True):
    """The one field of an EngineCoreOutput that tells whose it is."""

    request_id: str


class OutputDecoder:
    """Decodes output messages; not thread-safe."""

    def __init__(self, version: WireVersion = WireVersion.V0_25) -> None:
        """``version``: that of the core."""
        self._decode_message = decoder_of_outputs(version)
        self._decode_output = decoder_of_output(version)
        self._envelope = msgspec.msgpack.Decoder(_Envelope)
        self._head = msgspec.msgpack.Decoder(_Head)

    def decode(self, frames: Sequence[Frame]) -> EngineCoreOutputs:
        """The message in ``frames``. Raises WireError if any part of it is wrong."""
        return self._decode_message(frames)

    def salvage(self, frames: Sequence[Frame]) -> tuple[EngineCoreOutputs, list[str]]:
        """What still decodes of a broken message, and the ids of the requests whose output does not."""
        envelope, broken_ids = self._open(frames), list[str]()
        salvaged = EngineCoreOutputs(envelope.engine_index if isinstance(envelope.engine_index, int) else -1)
        for raw in envelope.outputs:
            try:
                salvaged.outputs.append(self._decode_output([raw, *frames[1:]]))
            except WireError as error:
                logger.warning("broken output: %s", error)
                broken_ids += self._request_id(raw)
        return salvaged, broken_ids

    def _open(self, frames: Sequence[Frame]) -> _Envelope:
        try:
            return self._envelope.decode(frames[0])
        except (msgspec.DecodeError, IndexError):
            return _Envelope(None, [])

    def _request_id(self, raw: msgspec.Raw) -> list[str]:
        """The id in ``raw``, if there is one to read."""
        try:
            return [self._head.decode(raw).request_id]
        except msgspec.DecodeError:
            return []
