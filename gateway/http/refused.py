"""What a caller is told of a refusal, whichever part of the server raised it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from loragate.adapter_store.errors import StoreError, Unavailable
from loragate.gateway.errors import ApiError

_INDEX = re.compile(r"\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Refused:
    """`param` is a dotted path; `headers` belong on the answer."""

    status: int
    message: str
    type: str
    param: str | None
    code: str | None
    headers: Mapping[str, str] = field(default_factory=dict)


def refused(error: ApiError | StoreError) -> Refused:
    """The same shape for the gateway's own errors and the store's."""
    if isinstance(error, ApiError):
        return Refused(error.status, error.message, error.type, error.param, error.code, error.headers)
    param = None if error.param is None else _INDEX.sub(r".\1", error.param)
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else {}
    return Refused(error.status, error.message, error.type, param, error.code, headers)
