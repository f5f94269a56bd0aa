"""Response headers, as components of the document."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Header:
    """A response header. `required`: it is on every response that lists it."""

    description: str
    example: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


_NUMBER = {"type": "integer", "minimum": 0}
_RATE_LIMITS = {
    f"x-ratelimit-{what}-{kind}": Header(words.format(kind=kind), example, schema)
    for kind in ("requests", "tokens")
    for what, words, example, schema in (
        ("limit", "The limit of {kind} per minute of which the least remains.", "600", _NUMBER),
        ("remaining", "The {kind} that remain of it.", "599", _NUMBER),
        ("reset", "The time until the limit is fully available again.", "100ms", {"type": "string"}),
    )
}
HEADERS: Mapping[str, Header] = {
    "x-request-id": Header(
        "The id that the client sent, or else one that the server generated.", "req_5d41402abc4b2a76", required=True
    ),
    "request-id": Header("The same as `x-request-id`, for Anthropic's clients.", "req_5d41402abc4b2a76"),
    "openai-processing-ms": Header(
        "Milliseconds from the request's headers to the response's headers.", "12", _NUMBER, required=True
    ),
    "retry-after": Header("Seconds to wait before sending the request again.", "1", _NUMBER),
    "retry-after-ms": Header("Milliseconds to wait before sending the request again.", "850", _NUMBER),
    "x-should-retry": Header(
        "Whether sending the same request again can succeed.", "true", {"enum": ["true", "false"]}
    ),
    "www-authenticate": Header("The authentication scheme.", 'Bearer realm="loragate"'),
    "idempotent-replayed": Header(
        "`true` if this is the stored response to an earlier request with the same `Idempotency-Key`.",
        "true",
        {"const": "true"},
    ),
    "x-loragate-adapter": Header(
        "The adapter, its version and its digest; absent for the base model.", "haiku:3@sha256:9f86d081884c7d65"
    ),
    **_RATE_LIMITS,
}
_ALWAYS = ("x-request-id", "openai-processing-ms")
ADAPTER = ("x-loragate-adapter",)
GENERATED = (*ADAPTER, *_RATE_LIMITS)


def header_references(*names: str) -> dict[str, Any]:
    """Return the `headers` of a response."""
    expanded = [each for name in names for each in (_RATE_LIMITS if name == "x-ratelimit" else (name,))]
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*_ALWAYS, *expanded)}


def header_components() -> dict[str, Any]:
    """Return `components.headers`."""
    return {
        name: {
            "description": header.description,
            "schema": dict(header.schema),
            "required": header.required,
            "example": int(header.example) if header.schema is _NUMBER else header.example,
        }
        for name, header in HEADERS.items()
    }
