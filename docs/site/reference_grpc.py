"""The reference of the gRPC services, made from the .proto files with their comments."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

PROTO = Path(__file__).parents[2] / "proto"
INTERNAL = {"engine.proto"}
SERVICE, MESSAGE, ENUM, FIELD, METHOD, VALUE = 6, 4, 5, 2, 2, 2  # numbers of fields of descriptor.proto
HEAD = """\
# gRPC reference

Look up a method, a message or a field. This page is made from the `.proto` files; [gRPC](../grpc.md) describes what all
methods share.
"""


def page() -> str:
    """Return the page: of each file the services, then the messages."""
    lines = [HEAD]
    for file in descriptors():
        comments = {tuple(at.path): comment(at) for at in file.source_code_info.location}
        for number, service in enumerate(file.service):
            lines += [f"\n## {service.name}\n", comments.get((SERVICE, number), ""), ""]
            lines.append("| method | request | response | |\n|---|---|---|---|")
            for at, method in enumerate(service.method):
                about = cell(comments.get((SERVICE, number, METHOD, at), ""))
                asked = ("stream of " if method.client_streaming else "") + link(method.input_type)
                got = ("stream of " if method.server_streaming else "") + link(method.output_type)
                lines.append(f"| `{method.name}` | {asked} | {got} | {about} |")
            lines.append("")
        for number, message in enumerate(file.message_type):
            lines += message_lines(message, (MESSAGE, number), comments)
        for number, enum in enumerate(file.enum_type):
            lines += enum_lines(enum, (ENUM, number), comments)
    return "\n".join(lines) + "\n"


def descriptors() -> list[FileDescriptorProto]:
    """Return the parsed files of the public services, with the positions of their comments."""
    names = sorted(path for path in PROTO.glob("loragate/v1/*.proto") if path.name not in INTERNAL)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        options = ["-I", str(PROTO), "--include_source_info", f"--descriptor_set_out={out}"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *map(str, names)], check=True)
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def message_lines(message: Any, path: tuple[int, ...], comments: dict[tuple[int, ...], str]) -> Iterator[str]:
    """Yield the lines of a message, and of those within it."""
    yield f"### {message.name}\n"
    yield comments.get(path, "") + "\n"
    nested = {each.name: each for each in message.nested_type}
    if message.field:
        yield "| field | type | number | |\n|---|---|---|---|"
    for at, field in enumerate(message.field):
        entry = nested.get(field.type_name.rpartition(".")[2])
        if entry is not None and entry.options.map_entry:
            shown = f"map of {kind(entry.field[0])} to {kind(entry.field[1])}"
        else:
            several = field.label == FieldDescriptorProto.LABEL_REPEATED
            shown = ("repeated " if several else "optional " if field.proto3_optional else "") + kind(field)
        yield f"| `{field.name}` | {shown} | {field.number} | {cell(comments.get((*path, FIELD, at), ''))} |"
    yield ""
    for number, each in enumerate(message.nested_type):
        if not each.options.map_entry:
            yield from message_lines(each, (*path, 3, number), comments)
    for number, each in enumerate(message.enum_type):
        yield from enum_lines(each, (*path, 4, number), comments)


def enum_lines(enum: Any, path: tuple[int, ...], comments: dict[tuple[int, ...], str]) -> Iterator[str]:
    """Yield the lines of an enumeration."""
    yield f"### {enum.name}\n"
    yield comments.get(path, "") + "\n"
    yield "| value | number | |\n|---|---|---|"
    for at, value in enumerate(enum.value):
        yield f"| `{value.name}` | {value.number} | {cell(comments.get((*path, VALUE, at), ''))} |"
    yield ""


def kind(field: FieldDescriptorProto) -> str:
    """Return a field's type, with a link to its message or enumeration."""
    if field.type_name:
        return link(field.type_name)
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def link(type_name: str) -> str:
    """Return a link to a type of ours; other types have no section here."""
    name = type_name.rpartition(".")[2]
    return f"[{name}](#{name.lower()})" if type_name.startswith(".loragate.") else f"`{type_name.lstrip('.')}`"


def comment(location: Any) -> str:
    """Return the comment before or behind a declaration."""
    return (location.leading_comments or location.trailing_comments).strip()


def cell(text: str) -> str:
    """Return a text on one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")
