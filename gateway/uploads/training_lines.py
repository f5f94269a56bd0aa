"""Validation of lines appended to an open file, by the rules of training: all are valid or none is added."""

import asyncio
import io
from typing import BinaryIO

from loragate.finetune.data.formats import Format
from loragate.finetune.data.validation import ValidationReport, Validator
from loragate.gateway.errors import InvalidRequest, PayloadTooLarge
from loragate.gateway.http.bodies import parse_body

MAX_APPEND_BYTES = 8 << 20  # of one append
_BOM = b"\xef\xbb\xbf"


async def check_lines(content: BinaryIO, size: int, format: str | None, param: str) -> str | None:
    """Return the lines' format, which has to be `format` if that is given; None if there are no lines.

    Add the line feed of the last line if it is missing. Raise InvalidRequest with the numbers of invalid lines in
    `content`, and PayloadTooLarge.
    """
    if size > MAX_APPEND_BYTES:
        raise PayloadTooLarge(f"An append is limited to {MAX_APPEND_BYTES} bytes; send several.", param=param)
    content.seek(0)
    raw = await asyncio.to_thread(content.read)
    if raw and not raw.endswith(b"\n"):
        content.write(b"\n")
    report = await parse_body(lambda lines: _validate(lines, format), raw)
    if raw.startswith(_BOM):
        raise _invalid("The first line begins with a byte order mark; remove it.", param)
    if report.problem_count:
        raise _invalid(f"Nothing was added: {report.problems_text}.", param)
    return report.format if report.examples else None


def _validate(lines: bytes, format: str | None) -> ValidationReport:
    validator = Validator(format=None if format is None else Format(format))
    for _ in validator.examples(io.BytesIO(lines)):
        pass
    return validator.report


def _invalid(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, param=param, code="invalid_lines")
