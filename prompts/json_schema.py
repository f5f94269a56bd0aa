"""JSON Schemas from clients, with limits on size and nesting."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

_MAX_BYTES = 64 << 10
_MAX_DEPTH = 64


def _bounded(schema: dict[str, Any]) -> dict[str, Any]:
    if _depth(schema) > _MAX_DEPTH:
        raise PydanticCustomError(
            "schema", "the schema must not be nested more than {most} levels deep", {"most": _MAX_DEPTH}
        )
    if len(json.dumps(schema, allow_nan=False)) > _MAX_BYTES:
        raise PydanticCustomError("schema", "the schema must not be longer than {most} bytes", {"most": _MAX_BYTES})
    return schema


def _depth(value: Any) -> int:
    """Return the nesting depth. Recursion is safe: request bodies are nested at most 200 levels deep."""
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(_depth, children), default=0)


JsonSchema = Annotated[dict[str, Any], AfterValidator(_bounded)]
