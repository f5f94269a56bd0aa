"""The committed stubs match the .proto files."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

PROTO = Path(__file__).parent.parent / "proto"
FILES = sorted(str(file.relative_to(PROTO)) for file in PROTO.rglob("*.proto"))


def compiled(file: str, folder: Path) -> FileDescriptorProto:
    """Return what protoc generates from the file now."""
    out = folder / "descriptors"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTO), f"--descriptor_set_out={out}", file]
    subprocess.run(command, check=True)
    [descriptor] = FileDescriptorSet.FromString(out.read_bytes()).file
    return descriptor


def committed(file: str) -> FileDescriptorProto:
    """Return what the stub was generated from."""
    module = importlib.import_module(file.removesuffix(".proto").replace("/", ".") + "_pb2")
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def without_json_names(descriptor: FileDescriptorProto) -> FileDescriptorProto:
    """Remove names that protoc derives; stubs omit them."""
    messages = list(descriptor.message_type)
    while messages:
        message = messages.pop()
        messages += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
    return descriptor


def test_there_are_files_to_check() -> None:
    assert "loragate/v1/engine.proto" in FILES


@pytest.mark.parametrize("file", FILES)
def test_stubs_are_current(file: str, tmp_path: Path) -> None:
    assert committed(file) == without_json_names(compiled(file, tmp_path)), "run `make proto`"


@pytest.mark.parametrize("file", FILES)
def test_types_and_services_are_current(file: str, tmp_path: Path) -> None:
    descriptor = compiled(file, tmp_path)
    types = (PROTO / file.replace(".proto", "_pb2.pyi")).read_text()
    services = (PROTO / file.replace(".proto", "_pb2_grpc.py")).read_text()
    for message in descriptor.message_type:
        assert f"class {message.name}(_message.Message):" in types
        for field in message.field:
            assert f"    {field.name}: " in types, f"{message.name}.{field.name}"
    for service in descriptor.service:
        for method in service.method:
            assert f"'/{descriptor.package}.{service.name}/{method.name}'" in services
