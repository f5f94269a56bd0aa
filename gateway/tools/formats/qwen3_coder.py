"""The format of Qwen3-Coder, over several lines:
`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`."""

from contextlib import suppress

from loragate.gateway.tools.formats.hermes import CLOSE, OPEN, tagged_call, tagged_object
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.tagged_arguments import Tags, tagged_arguments
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, sees, skip, space, word
from loragate.gateway.tools.types import CallStart, Malformed, Steps, Tools

FUNCTION, FUNCTION_END = "<function=", "</function>"
_TAGS = Tags(name=("<parameter=", ">"), value=("", "</parameter>"), lines=True)


class Qwen3Coder:
    """Streams strings as they arrive, and other values when they are complete."""

    markers = (OPEN, CLOSE)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Also read a function without the outer tag, and Hermes' JSON between the tags."""
        while (marker := (yield from content_until(stream, OPEN, FUNCTION))) is not None:
            with suppress(Malformed):
                yield from space(stream)
                if marker == OPEN and (yield from sees(stream, "{")):
                    yield from tagged_object(stream, tools)
                    continue
                if marker == OPEN:
                    yield from expect(stream, FUNCTION)
                yield from _function(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write JSON between the tags, because text between the tags of a value cannot be constrained to a schema."""
        return lark.repeated(tagged_call(lark, tools), "\n", max_calls)


def _function(stream: TextStream, tools: Tools) -> Steps[None]:
    name = yield from word(stream)
    yield from expect(stream, ">")
    yield from space(stream)
    begins = (yield from sees(stream, _TAGS.name[0])) or (yield from sees(stream, FUNCTION_END))
    if name not in tools or not begins:
        raise Malformed
    stream.commit()
    yield CallStart(name)
    yield from tagged_arguments(stream, _TAGS, tools[name], FUNCTION_END)
    if (yield from skip(stream, FUNCTION_END)):
        stream.commit()
    yield from space(stream)
    if (yield from skip(stream, CLOSE)):
        stream.commit()
