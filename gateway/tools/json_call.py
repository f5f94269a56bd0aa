"""Parsing of calls that are written as JSON."""

import re
from collections.abc import Container

from loragate.gateway.tools.brackets import bracketed, stream_bracketed
from loragate.gateway.tools.text_stream import TextStream, expect, sees, skip, space
from loragate.gateway.tools.types import Arguments, CallStart, Malformed, Steps
from loragate.prompts.json_text import parse_json

_ARGUMENTS = ("arguments", "parameters")
_DROPPED = ("type", "id")  # some models add them; the gateway assigns the ids
_SCALAR = re.compile(r"[^\s,}\]]*")


def call_object(stream: TextStream, tools: Container[str]) -> Steps[None]:
    """Read one `{"name": …, "arguments": {…}}`, with its keys in any order and `arguments` or `parameters`.

    Raise Malformed, but only before the call has begun.
    """
    name: str | None = None
    arguments = "null"
    yield from expect(stream, "{")
    while True:
        key = yield from _key(stream)
        if key == "name":
            name = _text((yield from _value(stream)))
            if name not in tools:
                raise Malformed
        elif key in _ARGUMENTS and name is not None and (yield from sees(stream, "{")):
            yield from call_with_arguments(stream, name)
            yield from _rest(stream)
            return
        elif key in _ARGUMENTS:
            arguments = yield from _value(stream)
        elif key in _DROPPED:
            yield from _value(stream)
        else:
            raise Malformed
        if not (yield from _skip_comma(stream)):
            break
    yield from expect(stream, "}")
    if name is None:
        raise Malformed
    arguments = _object_text(arguments)
    stream.commit()
    yield CallStart(name)
    yield Arguments(arguments)


def call_with_arguments(stream: TextStream, name: str) -> Steps[None]:
    """Read a call of `name` whose arguments begin here, and stream them unchanged. Raise Malformed without a brace.

    Once the call has begun, everything between the brackets is its arguments, valid or not, because a call that was
    sent cannot be revoked.
    """
    if not (yield from sees(stream, "{")):
        raise Malformed
    stream.commit()
    yield CallStart(name)
    yield from stream_bracketed(stream, Arguments)


def _rest(stream: TextStream) -> Steps[None]:
    """Read what follows the arguments in the call's object, whose closing brace models sometimes forget."""
    try:
        while (yield from _skip_comma(stream)):
            yield from _key(stream)
            yield from _value(stream)
        yield from expect(stream, "}")
    except Malformed:
        return
    stream.commit()


def _skip_comma(stream: TextStream) -> Steps[bool]:
    yield from space(stream)
    return (yield from skip(stream, ","))


def _key(stream: TextStream) -> Steps[str]:
    yield from space(stream)
    if not (yield from sees(stream, '"')):
        raise Malformed
    key = _text((yield from bracketed(stream)))
    yield from space(stream)
    yield from expect(stream, ":")
    yield from space(stream)
    return key


def _value(stream: TextStream) -> Steps[str]:
    """Read a value's text without parsing it."""
    while not stream.available and not stream.ended:
        yield None
    if stream.peek(1) in ('"', "{", "["):
        return (yield from bracketed(stream))
    while len(scalar := stream.match(_SCALAR) or "") == stream.available and not stream.ended:
        yield None
    return stream.take(len(scalar))


def _text(value: str) -> str:
    try:
        text = parse_json(value)
    except ValueError:
        raise Malformed from None
    if not isinstance(text, str):
        raise Malformed
    return text


def _object_text(value: str) -> str:
    """Return the arguments as the text of an object, which some models encode in a string, or omit."""
    try:
        content = parse_json(value)
        if isinstance(content, str):
            value, content = content, parse_json(content)
    except ValueError:
        raise Malformed from None
    if content is None:
        return "{}"
    if not isinstance(content, dict):
        raise Malformed
    return value
