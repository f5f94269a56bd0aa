"""What is known about one request beside its content: id, start, caller."""

import re
import secrets
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Scope

from loragate.adapter_store.audit.actor import SYSTEM, Actor

_SCOPE_KEY = "loragate.context"
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True)
class RequestContext:
    """Filled in as the request travels; the access log line is written from it."""

    request_id: str
    started: float = field(default_factory=time.monotonic)
    tenant_id: str | None = None
    key_id: str | None = None
    actor: Actor = SYSTEM

    @property
    def elapsed_seconds(self) -> float:
        """Since the request's headers were read."""
        return time.monotonic() - self.started

    def elapsed_ms(self) -> int:
        """The same in milliseconds."""
        return round(self.elapsed_seconds * 1000)


def open_context(scope: Scope) -> RequestContext:
    """A context for a request that just came in."""
    context = new_context(Headers(scope=scope).get("x-request-id", ""))
    scope[_SCOPE_KEY] = context
    return context


def new_context(asked: str) -> RequestContext:
    """`asked` is the client's own `x-request-id`, kept if it is sane."""
    return RequestContext(asked if _SANE_ID.fullmatch(asked) else f"req_{secrets.token_hex(16)}")


def context_of(scope: Scope) -> RequestContext:
    """The context that `open_context` made."""
    context: RequestContext = scope[_SCOPE_KEY]
    return context
