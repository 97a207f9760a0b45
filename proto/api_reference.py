"""Writes the reference of sluicegate.v1, in Markdown, from the descriptors and their comments: api_reference.py FILE.

What a reader may rely on stands in the protos, and there alone; prose around it is in docs/api.md.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

FOLDER = Path(__file__).parent
_PACKAGE = ".sluicegate.v1."
_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
"""Numbers of the fields of FileDescriptorProto: paths of comments begin with them."""
_FIELD, _ONEOF, _VALUE, _METHOD = 2, 8, 2, 2


@dataclass(frozen=True)
class Commented:
    """A file with the comment of each of its parts."""

    file: FileDescriptorProto
    comments: dict[tuple[int, ...], str]
    lines: dict[tuple[int, ...], int]

    @classmethod
    def of(cls, file: FileDescriptorProto) -> "Commented":
        locations = file.source_code_info.location
        comments = {tuple(location.path): _prose(location.leading_comments) for location in locations}
        return cls(file, comments, {tuple(location.path): location.span[0] for location in locations})

    def types(self) -> Iterator[tuple[tuple[int, ...], DescriptorProto | EnumDescriptorProto]]:
        """Messages and enums by their paths, in the order of the source."""
        messages = [((_MESSAGE, index), message) for index, message in enumerate(self.file.message_type)]
        enums = [((_ENUM, index), enum) for index, enum in enumerate(self.file.enum_type)]
        yield from sorted([*messages, *enums], key=lambda found: self.lines[found[0]])

    def title(self) -> str:
        """The comment above the package: what the file is about."""
        return self.comments[(2,)]


def _prose(comment: str) -> str:
    """Without what is said to tools, on one line, so that a cell of a table can hold it."""
    said = [line.strip() for line in comment.splitlines() if not line.strip().startswith("buf:")]
    return " ".join(said).strip().replace("|", "\\|")


def _linked(name: str) -> str:
    """A type, with a link if it is one of ours."""
    own = name.removeprefix(_PACKAGE)
    return f"[{own}](#{own.lower()})" if own != name else f"`{name.removeprefix('.')}`"


def _type_of(field: FieldDescriptorProto) -> str:
    scalar = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return _linked(field.type_name) if field.type_name else f"`{scalar}`"


def _entry(message: DescriptorProto, field: FieldDescriptorProto) -> DescriptorProto | None:
    """What a map is made of, if the field is one."""
    entries = [inner for inner in message.nested_type if inner.options.map_entry]
    return next((entry for entry in entries if field.type_name == f"{_PACKAGE}{message.name}.{entry.name}"), None)


def field_type(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    entry = _entry(message, field)
    return f"map of {' to '.join(map(_type_of, entry.field))}" if entry else _type_of(field)


def presence(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    """Whether, and how, unset can be told from zero."""
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        return "map" if _entry(message, field) else "repeated"
    if field.proto3_optional:
        return "optional"
    if field.HasField("oneof_index"):
        return f"one of `{message.oneof_decl[field.oneof_index].name}`"
    return "message" if field.type == FieldDescriptorProto.TYPE_MESSAGE else ""


def oneofs(message: DescriptorProto) -> list[tuple[int, str]]:
    """Index and name; not those that protoc makes for `optional`."""
    made = {field.oneof_index for field in message.field if field.proto3_optional}
    return [(index, oneof.name) for index, oneof in enumerate(message.oneof_decl) if index not in made]


def kind(method: MethodDescriptorProto) -> str:
    streams = {(False, False): "unary", (False, True): "server stream", (True, False): "client stream"}
    return streams.get((method.client_streaming, method.server_streaming), "bidirectional stream")


def descriptors() -> FileDescriptorSet:
    """Of all protos of the package, as protoc reads them, comments included."""
    protos = sorted(str(proto.relative_to(FOLDER)) for proto in (FOLDER / "sluicegate/v1").glob("*.proto"))
    with tempfile.TemporaryDirectory() as made:
        out = Path(made, "set.binpb")
        protoc = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", "-I", "third_party"]
        flags = ["--include_source_info", f"--descriptor_set_out={out}"]
        subprocess.run([*protoc, *flags, *protos], cwd=FOLDER, check=True)
        return FileDescriptorSet.FromString(out.read_bytes())


def reference() -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER), trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.globals |= {"kind": kind, "linked": _linked, "oneofs": oneofs}
    environment.globals |= {"field_type": field_type, "presence": presence}
    environment.globals |= {"FIELD": _FIELD, "ONEOF": _ONEOF, "VALUE": _VALUE, "METHOD": _METHOD, "SERVICE": _SERVICE}
    # What clients call before what operators do, and both before what they share.
    files = [Commented.of(file) for file in sorted(descriptors().file, key=lambda file: file.name, reverse=True)]
    files.sort(key=lambda source: not source.file.service)
    return environment.get_template("api_reference.md.j2").render(files=files)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference())
