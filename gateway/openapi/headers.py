"""The headers of answers, as components of the document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Header:
    """`required` on every answer that names it."""

    description: str
    example: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


_NUMBER = {"type": "integer", "minimum": 0}
_RATE_LIMITS = {
    f"x-ratelimit-{what}-{kind}": Header(words.format(kind=kind), example, schema)
    for kind in ("requests", "tokens")
    for what, words, example, schema in (
        ("limit", "The limit of {kind} per minute that has the least left.", "600", _NUMBER),
        ("remaining", "What is left of it.", "599", _NUMBER),
        ("reset", "When all of it is there again.", "100ms", {"type": "string"}),
    )
}
HEADERS: Mapping[str, Header] = {
    "x-request-id": Header("The client's own, if it sent one; else ours.", "req_5d41402abc4b2a76", required=True),
    "openai-processing-ms": Header("From the request's headers to the answer's.", "12", _NUMBER, required=True),
    "retry-after": Header("Seconds to wait.", "1", _NUMBER),
    "retry-after-ms": Header("The same in milliseconds.", "850", _NUMBER),
    "x-should-retry": Header("Whether sending the same again can help.", "true", {"enum": ["true", "false"]}),
    "www-authenticate": Header("How to authenticate.", 'Bearer realm="loragate"'),
    "idempotent-replayed": Header("`true` where the request was answered before.", "true", {"const": "true"}),
    "x-loragate-adapter": Header("What answered; absent for the base model.", "haiku:3@sha256:9f86d081884c7d65"),
    **_RATE_LIMITS,
}
_ALWAYS = ("x-request-id", "openai-processing-ms")
ADAPTER = ("x-loragate-adapter",)
GENERATED = (*ADAPTER, *_RATE_LIMITS)


def header_references(*names: str) -> dict[str, Any]:
    """`headers` of an answer."""
    expanded = [each for name in names for each in (_RATE_LIMITS if name == "x-ratelimit" else (name,))]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*_ALWAYS, *expanded)}


def header_components() -> dict[str, Any]:
    """`components.headers`."""
    return {
        name: {
            "description": header.description,
            "schema": dict(header.schema),
            "required": header.required,
            "example": int(header.example) if header.schema is _NUMBER else header.example,
        }
        for name, header in HEADERS.items()
    }
