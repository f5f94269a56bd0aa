"""The format of Llama 3.1 and 3.2: `{"name": …, "parameters": {…}}`, with or without a leading `<|python_tag|>`.

Without the tag, only a response that begins with a call contains calls; several are separated by semicolons.
"""

from loragate.gateway.tools.json_call import call_object
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, sees, skip, space
from loragate.gateway.tools.types import Malformed, Steps, Tools

TAG = "<|python_tag|>"


class LlamaJson:
    """Each call is plain JSON."""

    markers = (TAG,)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Read an object that is not a call of a known tool as a response in JSON."""
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

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write calls without the tag, which also announces code."""
        return lark.repeated(lark.call_objects(tools, "parameters"), "; ", max_calls)


def _next_begins(stream: TextStream) -> Steps[bool]:
    yield from space(stream)
    yield from skip(stream, ";")
    yield from space(stream)
    return (yield from sees(stream, "{"))
