"""The format of Hermes, Qwen 2.5 and 3 and many others: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

from contextlib import suppress

from loragate.gateway.tools.json_call import call_object
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, space
from loragate.gateway.tools.types import Malformed, Steps, Tools

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Hermes:
    """Each call is between its own tags."""

    markers = (OPEN, CLOSE)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Also read a call without the closing tag."""
        while (yield from content_until(stream, OPEN)):
            with suppress(Malformed):
                yield from space(stream)
                yield from tagged_object(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write calls as Qwen's template does."""
        return lark.repeated(tagged_call(lark, tools), "\n", max_calls)


def tagged_object(stream: TextStream, tools: Tools) -> Steps[None]:
    """Read what follows the opening tag. Raise Malformed."""
    yield from call_object(stream, tools)
    yield from space(stream)
    yield from expect(stream, CLOSE)
    stream.commit()


def tagged_call(lark: Lark, tools: Tools) -> str:
    """Return the expression of one call between its tags."""
    call = lark.call_objects(tools, "arguments")
    return lark.sequence(lark.text(f"{OPEN}\n"), call, lark.text(f"\n{CLOSE}"))
