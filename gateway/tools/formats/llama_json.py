"""`{"name": …, "parameters": {…}}`, with or without `<|python_tag|>` in front: Llama 3.1 and 3.2.

Without the tag only an answer that begins with a call holds calls; several are joined by semicolons.
"""

from loragate.gateway.tools.json_call import call_object
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, sees, skip, space
from loragate.gateway.tools.types import Malformed, Steps, Tools

TAG = "<|python_tag|>"


class LlamaJson:
    """Bare JSON."""

    markers = (TAG,)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """An object that is no call of a known tool is an answer in JSON."""
        yield from space(stream)
        call_is_next = yield from sees(stream, "{")
        while call_is_next or (yield from content_until(stream, TAG)):
            call_is_next = False
            try:
                yield from space(stream)
                yield from call_object(stream, tools)
                call_is_next = yield from _next_begins(stream)
            except Malformed:
                continue

    def write(self, lark: Lark, tools: Tools, *, most: int) -> str:
        """Without the tag: it also announces code."""
        return lark.several(lark.call_objects(tools, "parameters"), "; ", most)


def _next_begins(stream: TextStream) -> Steps[bool]:
    yield from space(stream)
    yield from skip(stream, ";")
    yield from space(stream)
    return (yield from sees(stream, "{"))
