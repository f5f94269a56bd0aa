"""The lines of a JSONL file, one at a time: whatever the file holds, no more than one line is in memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pydantic_core

from loragate.finetune.data.errors import InvalidLine

MAX_LINE_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """`number` counts from 1, blank lines too; `end` is where the next begins. Of a line too long, its start."""

    number: int
    content: bytes
    end: int


def read_lines(file: BinaryIO, before: int = 0) -> Iterator[Line]:
    """Those that are not blank, from where `file` stands; so many lines came before."""
    number, end = before, file.tell()
    while content := file.readline(MAX_LINE_BYTES + 1):
        end += len(content)
        if len(content) > MAX_LINE_BYTES and not content.endswith(b"\n"):
            end += _skip_rest(file)
        number += 1
        if number == 1:
            content = content.removeprefix(_BOM)
        if not content.isspace() and content:
            yield Line(number, content, end)


def parse_document(line: Line) -> dict[str, Any]:
    """Raises InvalidLine for what is no JSON object. Nesting and the length of numbers are bounded by the parser."""
    if len(line.content) > MAX_LINE_BYTES:
        raise InvalidLine(f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
    if line.content.lstrip().startswith(b"["):
        raise InvalidLine("it must be a JSON object, and there is no list around the lines")
    try:
        document = pydantic_core.from_json(line.content, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidLine(f"it is not valid JSON: {str(error).replace('line 1 column', 'column')}") from None
    if not isinstance(document, dict):
        raise InvalidLine("it must be a JSON object")
    json.loads(line.content, object_pairs_hook=_each_once)
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    """Parsers take the last one of several, without a word."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidLine("it has an object with the same field twice")


def _skip_rest(file: BinaryIO) -> int:
    """Goes behind the end of the line; returns how many bytes that was."""
    skipped = 0
    while piece := file.readline(_SKIP_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
