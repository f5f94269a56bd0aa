"""Mistral: `[TOOL_CALLS][{"name": …, "arguments": {…}}, …]`, and since 2025 `[TOOL_CALLS]name[ARGS]{…}` for each."""

from contextlib import suppress

from loragate.gateway.tools.json_call import call_object, call_with_arguments
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, skip, space, word
from loragate.gateway.tools.types import Malformed, Steps, Tools

CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"


class Mistral:
    """Reads both ways; `named` says which of them the model writes."""

    markers = (CALLS, CALL_ID, ARGS)

    def __init__(self, *, named: bool) -> None:
        self._named = named

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Ids that the model gives are dropped."""
        while (yield from content_until(stream, CALLS)):
            with suppress(Malformed):
                yield from space(stream)
                if (yield from skip(stream, "[")):
                    yield from _list(stream, tools)
                else:
                    yield from _call(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, most: int) -> str:
        """As the model's own template writes them."""
        if self._named:
            calls = [
                lark.sequence(lark.text(f"{CALLS}{name}{ARGS}"), lark.json(schema)) for name, schema in tools.items()
            ]
            return lark.several(lark.either(calls), "", most)
        several = lark.several(lark.call_objects(tools, "arguments"), ", ", most)
        return lark.sequence(lark.text(f"{CALLS}["), several, lark.text("]"))


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
