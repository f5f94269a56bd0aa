"""Lines for a file that is open: looked at as training will look at them, all of them good or none taken."""

import asyncio
import io
from typing import BinaryIO

from loragate.finetune.data.formats import Format
from loragate.finetune.data.validation import ValidationReport, Validator
from loragate.gateway.errors import InvalidRequest, PayloadTooLarge
from loragate.gateway.http.bodies import parsed

MOST_LINES_BYTES = 8 << 20  # of one append
_BOM = b"\xef\xbb\xbf"


async def format_of_lines(content: BinaryIO, size: int, format: str | None, param: str) -> str | None:
    """Their format, which must be `format` where that is known; None where there are no lines. Closes the last line.

    Raises InvalidRequest with the lines at fault, by their numbers in `content`, and PayloadTooLarge.
    """
    if size > MOST_LINES_BYTES:
        raise PayloadTooLarge(f"At most {MOST_LINES_BYTES} bytes are taken at once: send more appends.", param=param)
    content.seek(0)
    raw = await asyncio.to_thread(content.read)
    if raw and not raw.endswith(b"\n"):
        content.write(b"\n")
    found = await parsed(lambda lines: _examined(lines, format), raw)
    if raw.startswith(_BOM):
        raise _refused("The first line begins with a byte order mark; leave it out.", param)
    if found.problem_count:
        raise _refused(f"Nothing was taken: {found.problems_text}.", param)
    return found.format if found.examples else None


def _examined(lines: bytes, format: str | None) -> ValidationReport:
    validator = Validator(format=None if format is None else Format(format))
    for _ in validator.examples(io.BytesIO(lines)):
        pass
    return validator.report


def _refused(words: str, param: str) -> InvalidRequest:
    return InvalidRequest(words, param=param, code="invalid_lines")
