"""`<tool_call>{"name": …, "arguments": {…}}</tool_call>`: Hermes, Qwen 2.5 and 3, and many that follow them."""

from contextlib import suppress

from loragate.gateway.tools.json_call import call_object
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, space
from loragate.gateway.tools.types import Malformed, Steps, Tools

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Hermes:
    """Each call between tags of its own."""

    markers = (OPEN, CLOSE)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """A call without the closing tag counts."""
        while (yield from content_until(stream, OPEN)):
            with suppress(Malformed):
                yield from space(stream)
                yield from tagged_object(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, most: int) -> str:
        """As Qwen's template writes them."""
        return lark.several(tagged_call(lark, tools), "\n", most)


def tagged_object(stream: TextStream, tools: Tools) -> Steps[None]:
    """What follows the opening tag. Raises Malformed."""
    yield from call_object(stream, tools)
    yield from space(stream)
    yield from expect(stream, CLOSE)
    stream.commit()


def tagged_call(lark: Lark, tools: Tools) -> str:
    """One call between its tags."""
    call = lark.call_objects(tools, "arguments")
    return lark.sequence(lark.text(f"{OPEN}\n"), call, lark.text(f"\n{CLOSE}"))
