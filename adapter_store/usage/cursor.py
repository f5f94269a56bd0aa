"""Cursors of lists of usage: opaque text, base64url of the last row's keys."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.names import could_be_version
from loragate.adapter_store.timestamps import rfc3339

_MAX_LENGTH = 4096  # characters of a cursor
_MAX_KEY_LENGTH = 255


def write_cursor(keys: Mapping[str, Any]) -> str:
    """Return the cursor of a row with these keys, in their order."""
    plain = [rfc3339(key) if isinstance(key, datetime) else key for key in keys.values()]
    return base64.urlsafe_b64encode(orjson.dumps(plain)).decode().rstrip("=")


def read_cursor(text: str, names: Sequence[str]) -> tuple[Any, ...]:
    """Return the keys, with the types of these columns. Raise Invalid for a cursor of another list."""
    try:
        if len(text) > _MAX_LENGTH:
            raise ValueError
        padding = "=" * (-len(text) % 4)
        keys = orjson.loads(base64.b64decode(text + padding, altchars=b"-_", validate=True))
        if not isinstance(keys, list):
            raise ValueError
        return tuple(_checked(name, key) for name, key in zip(names, keys, strict=True))
    except (ValueError, binascii.Error, OverflowError):
        raise Invalid("`after` is not the id of a row of this list.", param="after") from None


def _checked(name: str, key: object) -> object:
    if name == "adapter_version":
        if isinstance(key, int) and (key == 0 or could_be_version(key)):
            return key
    elif isinstance(key, str) and len(key) <= _MAX_KEY_LENGTH and "\0" not in key:
        return key if name != "start" else _moment(key)
    raise ValueError


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment
