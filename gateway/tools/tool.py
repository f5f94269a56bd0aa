"""The tools of one request."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = Mapping[str, Any]

# Name → the JSON Schema of its arguments, which is an object's.
Tools: TypeAlias = Mapping[str, Schema]
