"""Parsing of arguments that are written between tags, into one JSON object."""

from dataclasses import dataclass
from typing import Any

from loragate.gateway.tools.text_stream import TextStream, expect, sees, skip, space, text_until, until, word
from loragate.gateway.tools.types import Arguments, Malformed, Schema, Steps
from loragate.prompts.json_text import dump_json, parse_json

_PYTHON = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True, slots=True)
class Tags:
    """The tags around an argument's name and its value. `lines`: the value is on lines of its own."""

    name: tuple[str, str]
    value: tuple[str, str]
    lines: bool = False


def tagged_arguments(stream: TextStream, tags: Tags, schema: Schema, end: str) -> Steps[None]:
    """Yield the arguments up to `end`, which is not read. If the text ends before it, the object stays open.

    Values of type string are taken unchanged, others as JSON, or as a string if they are not valid JSON.
    """
    opening = "{"
    while (name := (yield from _name(stream, tags))) is not None:
        yield Arguments(f"{opening}{dump_json(name)}: ")
        opening = ", "
        if _is_string(schema, name):
            yield from _string(stream, tags)
        else:
            yield from _value(stream, tags)
    if (yield from sees(stream, end)) or not stream.ended:
        yield Arguments("{}" if opening == "{" else "}")
    elif opening == "{":
        yield Arguments("{")


def _name(stream: TextStream, tags: Tags) -> Steps[str | None]:
    """Read the next argument's name, up to the start of its value; return None if there is no other argument."""
    before, after = tags.name
    yield from space(stream)
    if not (yield from skip(stream, before)):
        return None
    try:
        name = yield from word(stream)
        yield from expect(stream, after)
        if tags.value[0]:
            yield from space(stream)
            yield from expect(stream, tags.value[0])
    except Malformed:
        return None
    if tags.lines:
        yield from skip(stream, "\n")
    stream.commit()
    return name


def _string(stream: TextStream, tags: Tags) -> Steps[None]:
    """Yield a string as it arrives."""
    yield Arguments('"')
    close = tags.value[1]
    ends = ("\n" + close, close) if tags.lines else (close,)
    if (yield from until(stream, lambda piece: Arguments(dump_json(piece)[1:-1]), *ends)):
        yield Arguments('"')
    stream.commit()


def _value(stream: TextStream, tags: Tags) -> Steps[None]:
    text = yield from text_until(stream, tags.value[1])
    if text is None:
        yield Arguments(stream.take(stream.available))
    else:
        yield Arguments(_as_json(text.removesuffix("\n") if tags.lines else text))
    stream.commit()


def _as_json(text: str) -> str:
    plain = text.strip()
    plain = _PYTHON.get(plain, plain)
    try:
        parse_json(plain)
    except ValueError:
        return dump_json(text)
    return plain


def _is_string(schema: Schema, name: str) -> bool:
    properties = schema.get("properties")
    value: Any = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(value, dict):
        return False
    options = value.get("enum", [value.get("const")])
    return value.get("type") == "string" or ("type" not in value and all(isinstance(each, str) for each in options))
