"""The frames recorded from genuine vLLM programs, with what the recording says of each."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.wire import messages
from core.wire.codec import Decoder

FOLDER = Path(__file__).parents[2] / "data" / "frames"
_ENTRIES = json.loads((FOLDER / "index.json").read_text())["entries"]


@dataclass(frozen=True)
class Recording:
    """One message. ``head``: its identity and type frames, ``frames``: the document and its array frames."""

    name: str
    head: list[bytes]
    frames: list[bytes]
    decoded: list[Any]

    @property
    def message_type(self) -> Any:
        """The type of the message, by its name in the index."""
        return next(message_type for words, message_type in _TYPES if any(word in self.name for word in words))

    def __str__(self) -> str:
        return self.name


_TYPES: list[tuple[tuple[str, ...], Any]] = [
    (("ready_response",), messages.EngineReadyResponse),
    (("hello", "core_ready"), messages.EngineHello),
    (("init",), messages.EngineInit),
    (("core_out", "core_util"), messages.EngineCoreOutputs),
    (("_add",), messages.EngineCoreRequest),
    (("_abort",), list[str]),
    (("_util",), messages.UtilityCall),
]


def _load(entry: dict[str, Any]) -> Recording:
    frames = [(FOLDER / frame["file"]).read_bytes() for frame in entry["frames"]]
    split = next(i for i, content in enumerate(entry["decoded"]) if "$bytes" not in content)
    return Recording(entry["name"], frames[:split], frames[split:], entry["decoded"][split:])


def recordings() -> list[Recording]:
    """Every recorded message but ENGINE_CORE_DEAD, which is not msgpack."""
    return [_load(entry) for entry in _ENTRIES if entry["name"] != "core_dead"]


def recording(name: str) -> Recording:
    return next(found for found in recordings() if found.name == name)


def recorded_outputs(name: str) -> messages.EngineCoreOutputs:
    return Decoder(messages.EngineCoreOutputs).decode(recording(name).frames)


def raw_frame(file_name: str) -> bytes:
    return (FOLDER / file_name).read_bytes()
