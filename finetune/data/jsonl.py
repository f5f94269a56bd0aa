"""The lines of a JSONL file, read one at a time: never more than one line is in memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pydantic_core

from loragate.finetune.data.errors import InvalidLine

MAX_LINE_BYTES = 4 << 20
MAX_LINES = 10_000_000  # of one file, blank ones included: shorter ones than 100 bytes cost more time than space
_BOM = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `number` counts from 1 and includes blank lines; `end` is the offset of the next line. `content` of a
    line that is too long is only its beginning."""

    number: int
    content: bytes
    end: int


def read_lines(file: BinaryIO, lines_before: int = 0) -> Iterator[Line]:
    """Yield the lines that are not blank, from the current position of `file`, which `lines_before` lines precede.
    The last line yielded is the first one beyond `MAX_LINES`, even if it is blank; `parse_document` rejects it."""
    number, end = lines_before, file.tell()
    while content := file.readline(MAX_LINE_BYTES + 1):
        end += len(content)
        if len(content) > MAX_LINE_BYTES and not content.endswith(b"\n"):
            end += _skip_rest(file)
        number += 1
        if number == 1:
            content = content.removeprefix(_BOM)
        if number > MAX_LINES:
            yield Line(number, content, end)
            return
        if not content.isspace() and content:
            yield Line(number, content, end)


def parse_document(line: Line) -> dict[str, Any]:
    """Return the line's JSON object. Raise InvalidLine for anything else. The parser bounds nesting and the length of
    numbers."""
    if line.number > MAX_LINES:
        raise InvalidLine(f"a file has at most {MAX_LINES} lines; split it")
    if len(line.content) > MAX_LINE_BYTES:
        raise InvalidLine(f"it is longer than {MAX_LINE_BYTES >> 20} MiB")
    if line.content.lstrip().startswith(b"["):
        raise InvalidLine("it must be a JSON object: do not wrap the lines in a list")
    try:
        text = line.content.rstrip(b"\r\n").decode()  # a parser that reached the line feed would be in "line 2"
        document = pydantic_core.from_json(text, allow_inf_nan=False)
    except UnicodeDecodeError as error:
        wrong = line.content[error.start]
        raise InvalidLine(f"it is not UTF-8: byte {error.start + 1} of the line is 0x{wrong:02x}") from None
    except ValueError as error:
        raise InvalidLine(f"it is not valid JSON: {str(error).replace('line 1 column', 'column')}") from None
    if not isinstance(document, dict):
        raise InvalidLine("it must be a JSON object")
    _DUPLICATES.decode(text)
    return document


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> None:
    """Raise InvalidLine for a repeated field, of which parsers silently take the last."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise InvalidLine("an object has the same field twice")


_DUPLICATES = json.JSONDecoder(object_pairs_hook=_reject_duplicates)


def _skip_rest(file: BinaryIO) -> int:
    """Skip to the end of the line and return the number of bytes skipped."""
    skipped = 0
    while piece := file.readline(_SKIP_BYTES):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped
