"""Validation of lines appended to an open file, by the rules of training: all are valid or none is added."""

import asyncio
from typing import BinaryIO

from loragate.finetune.data.formats import Format
from loragate.finetune.data.validation import ValidationReport, Validator
from loragate.gateway.errors import InvalidRequest, PayloadTooLarge
from loragate.gateway.resilience.tenant_threads import TenantThreads, with_pauses

MAX_APPEND_BYTES = 8 << 20  # of one append
MAX_APPEND_LINES = 65_536
_BOM = b"\xef\xbb\xbf"
_READ_BYTES = 1 << 20


async def check_lines(
    threads: TenantThreads, tenant_id: str, content: BinaryIO, size: int, format: str | None, param: str
) -> str | None:
    """Return the lines' format, which has to be `format` if that is given; None if there are no lines.

    Add the line feed of the last line if it is missing. Raise InvalidRequest with the numbers of invalid lines in
    `content`, and PayloadTooLarge.
    """
    if size > MAX_APPEND_BYTES:
        raise PayloadTooLarge(f"An append is limited to {MAX_APPEND_BYTES} bytes; send several.", param=param)
    try:
        report = await threads.run(tenant_id, lambda: _validate(content, format, param))
    except asyncio.CancelledError:
        content.close()  # ends the thread at its next line
        raise
    if report.problems:
        raise _invalid(f"Nothing was added: {report.problems_text}.", param)
    return report.format if report.examples else None


def _validate(content: BinaryIO, format: str | None, param: str) -> ValidationReport:
    _check_shape(content, param)
    content.seek(0)
    validator = Validator(format=None if format is None else Format(format))
    for _ in with_pauses(validator.examples(content)):
        pass
    return validator.report


def _check_shape(content: BinaryIO, param: str) -> None:
    """Check what takes no parsing, and end the last line."""
    content.seek(0)
    if content.read(len(_BOM)) == _BOM:
        raise _invalid("The first line begins with a byte order mark; remove it.", param)
    content.seek(0)
    lines, last = 0, b"\n"
    while piece := content.read(_READ_BYTES):
        lines += piece.count(b"\n")
        last = piece[-1:]
    if last != b"\n":
        content.write(b"\n")
        lines += 1
    if lines > MAX_APPEND_LINES:
        message = f"An append is limited to {MAX_APPEND_LINES} lines, and this one has {lines}; send several."
        raise PayloadTooLarge(message, param=param)


def _invalid(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, param=param, code="invalid_lines")
