"""The format of GLM 4.5 and later, over several lines:
`<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`."""

from contextlib import suppress

from loragate.gateway.tools.formats.hermes import CLOSE, OPEN, tagged_call, tagged_object
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.tagged_arguments import Tags, tagged_arguments
from loragate.gateway.tools.text_stream import TextStream, content_until, sees, skip, space, word
from loragate.gateway.tools.types import CallStart, Malformed, Steps, Tools

_TAGS = Tags(name=("<arg_key>", "</arg_key>"), value=("<arg_value>", "</arg_value>"))


class Glm:
    """Streams strings as they arrive, and other values when they are complete."""

    markers = (OPEN, CLOSE, *_TAGS.name, *_TAGS.value)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Also read Hermes' JSON between the tags."""
        while (yield from content_until(stream, OPEN)):
            with suppress(Malformed):
                yield from space(stream)
                if (yield from sees(stream, "{")):
                    yield from tagged_object(stream, tools)
                else:
                    yield from _call(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write JSON between the tags, because text between the tags of a value cannot be constrained to a schema."""
        return lark.repeated(tagged_call(lark, tools), "\n", max_calls)


def _call(stream: TextStream, tools: Tools) -> Steps[None]:
    name = yield from word(stream)
    yield from space(stream)
    begins = (yield from sees(stream, _TAGS.name[0])) or (yield from sees(stream, CLOSE))
    if name not in tools or not begins:
        raise Malformed
    stream.commit()
    yield CallStart(name)
    yield from tagged_arguments(stream, _TAGS, tools[name], CLOSE)
    if (yield from skip(stream, CLOSE)):
        stream.commit()
