"""The format of DeepSeek V3, R1 and V3.1: calls between special tokens, the name before a separator, then JSON.

V3 and R1 write `function<｜tool▁sep｜>name`, a line break and a fenced block; V3.1 writes `name<｜tool▁sep｜>{…}`.
"""

from contextlib import suppress

from loragate.gateway.tools.json_call import call_with_arguments
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, sees, skip, space, word
from loragate.gateway.tools.types import Malformed, Steps, Tools

CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_BEGIN, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
FENCE = "```"


class DeepSeek:
    """Reads both variants; `fenced` selects the one that the model writes."""

    markers = (CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_END, SEPARATOR)

    def __init__(self, *, fenced: bool) -> None:
        self._fenced = fenced

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Also read calls without the outer tokens."""
        while (marker := (yield from content_until(stream, CALLS_BEGIN, CALL_BEGIN))) is not None:
            with suppress(Malformed):
                if marker == CALLS_BEGIN:
                    yield from space(stream)
                    yield from expect(stream, CALL_BEGIN)
                yield from _calls(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write calls as the model's own template does."""
        calls = []
        for name, schema in tools.items():
            before = f"function{SEPARATOR}{name}\n{FENCE}json\n" if self._fenced else f"{name}{SEPARATOR}"
            after = f"\n{FENCE}{CALL_END}" if self._fenced else CALL_END
            calls.append(lark.sequence(lark.text(CALL_BEGIN + before), lark.json(schema), lark.text(after)))
        calls_text = lark.repeated(lark.either(calls), "\n" if self._fenced else "", max_calls)
        return lark.sequence(lark.text(CALLS_BEGIN), calls_text, lark.text(CALLS_END))


def _calls(stream: TextStream, tools: Tools) -> Steps[None]:
    """Read from after the token that begins the first call to after the token that ends all calls."""
    while True:
        yield from _call(stream, tools)
        yield from space(stream)
        if not (yield from skip(stream, CALL_BEGIN)):
            break
    yield from skip(stream, CALLS_END)
    stream.commit()


def _call(stream: TextStream, tools: Tools) -> Steps[None]:
    name = yield from word(stream)
    yield from expect(stream, SEPARATOR)
    if not (yield from sees(stream, "{")):
        name = yield from word(stream)
        yield from space(stream)
        yield from skip(stream, f"{FENCE}json")
        yield from space(stream)
    if name not in tools:
        raise Malformed
    yield from call_with_arguments(stream, name)
    yield from space(stream)
    yield from skip(stream, FENCE)
    yield from space(stream)
    yield from skip(stream, CALL_END)
    stream.commit()
