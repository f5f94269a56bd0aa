"""The context of one request: id, start, caller."""

import re
import secrets
import time
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Scope

from loragate.adapter_store.audit.actor import SYSTEM, Actor
from loragate.gateway.connections.peers import NO_PROXIES, TrustedProxies

_SCOPE_KEY = "loragate.context"
_VALID_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True)
class RequestContext:
    """Filled in while the request is processed; the source of its line in the access log."""

    request_id: str
    peer: str = ""  # the client's address, behind trusted proxies the one that they forward; "" for a Unix socket
    started: float = field(default_factory=time.monotonic)
    tenant_id: str | None = None
    key_id: str | None = None
    actor: Actor = SYSTEM

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the request's headers were read."""
        return time.monotonic() - self.started

    def elapsed_ms(self) -> int:
        """Return the milliseconds since the request's headers were read."""
        return round(self.elapsed_seconds * 1000)


def open_context(scope: Scope, proxies: TrustedProxies = NO_PROXIES) -> RequestContext:
    """Create the context of a request that has just arrived."""
    client, headers = scope.get("client"), Headers(scope=scope)
    peer = proxies.client_of("" if client is None else client[0], headers.getlist("x-forwarded-for"))
    context = new_context(headers.get("x-request-id", ""), peer)
    scope[_SCOPE_KEY] = context
    return context


def new_context(asked: str, peer: str) -> RequestContext:
    """Create a context. `asked` is the client's own `x-request-id`, which is used if it is well-formed."""
    return RequestContext(asked if _VALID_ID.fullmatch(asked) else f"req_{secrets.token_hex(16)}", peer)


def context_of(scope: Scope) -> RequestContext:
    """Return the context that `open_context` created."""
    context: RequestContext = scope[_SCOPE_KEY]
    return context
