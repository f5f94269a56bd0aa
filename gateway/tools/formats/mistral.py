"""The format of Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, since 2025 `[TOOL_CALLS]name[ARGS]{…}` for
each call."""

from contextlib import suppress

from loragate.gateway.tools.json_call import call_object, call_with_arguments
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, skip, space, word
from loragate.gateway.tools.types import Malformed, Steps, Tools

CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


class Mistral:
    """Reads both variants; `named` selects the one that the model writes."""

    markers = (CALLS, CALL_ID, ARGS)

    def __init__(self, *, named: bool) -> None:
        self._named = named

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Read calls without the ids that the model assigns."""
        while (yield from content_until(stream, CALLS)):
            with suppress(Malformed):
                yield from space(stream)
                if (yield from skip(stream, "[")):
                    yield from _list(stream, tools)
                else:
                    yield from _call(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write calls as the model's own template does."""
        if self._named:
            calls = [
                lark.sequence(lark.text(f"{CALLS}{name}{ARGS}"), lark.json(schema)) for name, schema in tools.items()
            ]
            return lark.repeated(lark.either(calls), "", max_calls)
        calls_text = lark.repeated(lark.call_objects(tools, "arguments"), ", ", max_calls)
        return lark.sequence(lark.text(f"{CALLS}["), calls_text, lark.text("]"))


def _list(stream: TextStream, tools: Tools) -> Steps[None]:
    while True:
        yield from space(stream)
        yield from call_object(stream, tools)
        yield from space(stream)
        if not (yield from skip(stream, ",")):
            break
    yield from expect(stream, "]")
    stream.commit()


def _call(stream: TextStream, tools: Tools) -> Steps[None]:
    name = yield from word(stream)
    if name not in tools:
        raise Malformed
    if (yield from skip(stream, CALL_ID)):
        yield from word(stream)
    yield from skip(stream, ARGS)
    yield from space(stream)
    yield from call_with_arguments(stream, name)
