"""The format of Llama 4 and other models that were trained to write Python: `[name(a=1, b="x"), …]`.

Calls are between `<|python_start|>` and `<|python_end|>`, or are the whole response.
"""

from collections.abc import Sequence
from contextlib import suppress

from loragate.gateway.tools.brackets import bracketed
from loragate.gateway.tools.lark import Lark
from loragate.gateway.tools.python_literals import keyword_arguments
from loragate.gateway.tools.text_stream import TextStream, content_until, expect, sees, skip, space, word
from loragate.gateway.tools.types import Arguments, CallStart, Malformed, Schema, Steps, Tools
from loragate.prompts.json_text import dump_json

START, END = "<|python_start|>", "<|python_end|>"


class Pythonic:
    """Sends a call when its closing bracket has arrived, because it is converted to JSON as a whole."""

    markers = (START, END)

    def read(self, stream: TextStream, tools: Tools) -> Steps[None]:
        """Read a list that contains anything but calls of known tools as text."""
        yield from space(stream)
        list_is_next = yield from sees(stream, "[")
        while list_is_next or (yield from content_until(stream, START)):
            list_is_next = False
            with suppress(Malformed):
                yield from _list(stream, tools)

    def write(self, lark: Lark, tools: Tools, *, max_calls: int) -> str:
        """Write values as JSON, which `read` accepts too, and required arguments first."""
        calls = [
            lark.sequence(lark.text(f"{name}("), _keywords(lark, schema), lark.text(")"))
            for name, schema in tools.items()
        ]
        return lark.sequence(lark.text("["), lark.repeated(lark.either(calls), ", ", max_calls), lark.text("]"))


def _list(stream: TextStream, tools: Tools) -> Steps[None]:
    yield from space(stream)
    yield from expect(stream, "[")
    while True:
        yield from space(stream)
        yield from _call(stream, tools)
        yield from space(stream)
        if not (yield from skip(stream, ",")):
            break
    yield from expect(stream, "]")
    yield from space(stream)
    yield from skip(stream, END)
    stream.commit()


def _call(stream: TextStream, tools: Tools) -> Steps[None]:
    name = yield from word(stream)
    if name not in tools or not (yield from sees(stream, "(")):
        raise Malformed
    text = yield from bracketed(stream, quotes="\"'")
    try:
        arguments = dump_json(keyword_arguments(text))
    except ValueError:
        raise Malformed from None
    stream.commit()
    yield CallStart(name)
    yield Arguments(arguments)


def _keywords(lark: Lark, schema: Schema) -> str:
    """Return the required arguments in the schema's order, then any of the others in that order."""
    properties = schema.get("properties") or {}
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    needed = schema.get("required", ())
    required: list[str] = []
    optional: list[str] = []
    for name, value in properties.items():
        fits = definitions | value if isinstance(value, dict) else definitions
        keyword = lark.sequence(lark.text(f"{name}="), lark.json(fits))
        (required if name in needed else optional).append(keyword)
    if required:
        return _with_any(lark, ' ", " '.join(required), optional)
    beginnings = [_with_any(lark, first, optional[at:]) for at, first in enumerate(optional, start=1)]
    return f"{lark.either(beginnings)}?" if beginnings else ""


def _with_any(lark: Lark, begin: str, others: Sequence[str]) -> str:
    return lark.sequence(begin, *(f'(", " {keyword})?' for keyword in others))
