"""Appending lines to an open file, in chunks that a lost connection does not duplicate."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from loragate.cli.client.http.api import Api, path
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.client.transfer.parts import retry
from loragate.cli.errors import CliError

_CHUNK_BYTES = 4 << 20
_MAX_LINE_BYTES = 4 << 20  # the server's limit


def create_open_file(api: Api, name: str) -> dict[str, Any]:
    """Create an empty open file and return it."""
    fields = {"purpose": "fine-tune", "open": "true"}
    return dict(api.call("POST", "/v1/files", data=fields, files={"file": (name, b"")}))


def append_all(api: Api, file_id: str, given: str) -> dict[str, Any]:
    """Append the lines of a local file, or of stdin for `-`, and return the server's file. Raise CliError."""
    if given == "-":
        return _send(api, file_id, sys.stdin.buffer, None)
    file = Path(given).expanduser()
    if not file.is_file():
        raise CliError(f"there is no file {given}")
    with file.open("rb") as source:
        return _send(api, file_id, source, file.stat().st_size)


def chunks(source: BinaryIO) -> Iterator[bytes]:
    """Yield chunks of whole lines. Raise CliError for a line that is too long."""
    before = 0
    while lines := source.readlines(_CHUNK_BYTES):
        for number, line in enumerate(lines, before + 1):
            if len(line) > _MAX_LINE_BYTES:
                raise CliError(f"line {number} is longer than {_MAX_LINE_BYTES >> 20} MiB")
        before += len(lines)
        yield b"".join(lines)


def _send(api: Api, file_id: str, source: BinaryIO, size: int | None) -> dict[str, Any]:
    grown: dict[str, Any] | None = None
    taken = 0
    with transfer_progress() as progress:
        task = progress.add_task(f"appending to {file_id}", total=size)
        for chunk in chunks(source):
            try:
                grown = _append(api, file_id, chunk)
            except CliError as error:
                raise CliError(f"{error.message}{_accepted_note(taken)}") from None
            taken += chunk.count(b"\n")
            progress.advance(task, len(chunk))
    if grown is None:
        raise CliError("there are no lines to append")
    return grown


def _accepted_note(taken: int) -> str:
    return f"\n  the first {taken} lines were appended; the line numbers above are counted from there" if taken else ""


def _append(api: Api, file_id: str, lines: bytes) -> dict[str, Any]:
    sent = {"files": {"data": ("lines", lines)}, "headers": {"Idempotency-Key": uuid.uuid4().hex}}
    return dict(retry(lambda: api.call("POST", path("v1", "files", file_id, "append"), **sent)))
