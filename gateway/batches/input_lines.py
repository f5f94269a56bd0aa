"""The lines of a batch's input file, a few at a time."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

PORTION_LINES = 256
PORTION_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line of the input file, counted from 1. `content` is empty if the line is longer than a request may be."""

    number: int
    content: bytes


async def portions(chunks: AsyncIterator[bytes], longest: int) -> AsyncIterator[list[InputLine]]:
    """Yield the lines that are not blank, in portions of bounded size. A longer line than `longest` is not kept."""
    portion: list[InputLine] = []
    size = 0
    async for line in _lines(chunks, longest):
        portion.append(line)
        size += len(line.content)
        if len(portion) >= PORTION_LINES or size >= PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


async def _lines(chunks: AsyncIterator[bytes], longest: int) -> AsyncIterator[InputLine]:
    number, begun, too_long = 1, bytearray(), False
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            if too_long or len(begun) + len(end) > longest:
                yield InputLine(number, b"")
            elif (content := bytes(begun) + end).strip():
                yield InputLine(number, content)
            begun.clear()
            number, too_long = number + 1, False
        too_long = too_long or len(begun) + len(rest) > longest
        if too_long:
            begun.clear()
        else:
            begun += rest
    if too_long:
        yield InputLine(number, b"")
    elif begun.strip():
        yield InputLine(number, bytes(begun))
