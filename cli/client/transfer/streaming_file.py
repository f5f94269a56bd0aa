"""A file that grows: lines on their way to it, in portions that a dropped connection does not double."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from loragate.cli.client.http.api import Api
from loragate.cli.client.http.paths import path
from loragate.cli.client.terminal.progress import transfer
from loragate.cli.client.transfer.parts import again
from loragate.cli.refusal import Refusal

_PORTION_BYTES = 4 << 20
_LONGEST_LINE = 4 << 20  # which the server takes


def opened(api: Api, name: str) -> dict[str, Any]:
    """A new one, without a line."""
    fields = {"purpose": "fine-tune", "open": "true"}
    return dict(api.call("POST", "/v1/files", data=fields, files={"file": (name, b"")}))


def append_all(api: Api, file_id: str, given: str) -> dict[str, Any]:
    """The lines of a file here, or (`-`) of standard input. The file there, afterwards. Raises Refusal."""
    if given == "-":
        return _send(api, file_id, sys.stdin.buffer, None)
    file = Path(given).expanduser()
    if not file.is_file():
        raise Refusal(f"there is no file {given}")
    with file.open("rb") as source:
        return _send(api, file_id, source, file.stat().st_size)


def portions(source: BinaryIO) -> Iterator[bytes]:
    """Whole lines, a few at a time. Raises Refusal for a line that is too long."""
    before = 0
    while lines := source.readlines(_PORTION_BYTES):
        for number, line in enumerate(lines, before + 1):
            if len(line) > _LONGEST_LINE:
                raise Refusal(f"line {number} is longer than {_LONGEST_LINE >> 20} MiB")
        before += len(lines)
        yield b"".join(lines)


def _send(api: Api, file_id: str, source: BinaryIO, size: int | None) -> dict[str, Any]:
    grown: dict[str, Any] | None = None
    taken = 0
    with transfer() as progress:
        task = progress.add_task(f"appending to {file_id}", total=size)
        for portion in portions(source):
            try:
                grown = _append(api, file_id, portion)
            except Refusal as refused:
                raise Refusal(f"{refused.message}{_counted_behind(taken)}") from None
            taken += portion.count(b"\n")
            progress.advance(task, len(portion))
    if grown is None:
        raise Refusal("there are no lines to append")
    return grown


def _counted_behind(taken: int) -> str:
    return f"\n  the first {taken} lines were taken, and those that are named are counted behind them" if taken else ""


def _append(api: Api, file_id: str, lines: bytes) -> dict[str, Any]:
    sent = {"files": {"data": ("lines", lines)}, "headers": {"Idempotency-Key": uuid.uuid4().hex}}
    return dict(again(lambda: api.call("POST", path("v1", "files", file_id, "append"), **sent)))
