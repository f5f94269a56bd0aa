"""One call, as the functions that implement the methods receive it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.grpc.connection import MessageStream
from loragate.gateway.http.bodies import Pace, ReservedBytes, parse_body
from loragate.gateway.http.context import RequestContext
from loragate.gateway.http.idempotency import Once, Result, once_of
from loragate.gateway.services import Services

D = TypeVar("D")
T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """`headers` are sent as initial metadata before the first message. `tenant` is the caller of a method that requires
    a key. `reserved` holds the bytes of the call's last message, as far as they are not parsed yet."""

    services: Services
    context: RequestContext
    stream: MessageStream
    reserved: ReservedBytes
    headers: dict[str, str] = field(default_factory=dict)
    caller: TenantPrincipal | None = None

    @property
    def tenant(self) -> TenantPrincipal:
        assert self.caller is not None, "a public method has no caller"
        return self.caller

    @property
    def request_id(self) -> str:
        return self.context.request_id

    def change(self) -> Actor:
        """Count a change by the caller, and return it as the audit log's actor. Raise TooManyRequests."""
        self.services.change_limiter.charge(self.tenant.tenant_id)
        return self.context.actor

    def once(self, route: str) -> Once:
        """Return the call's `idempotency-key`; `route` is the equivalent one of the REST API."""
        return once_of(self.stream.metadata.get("idempotency-key"), self.services.store, route)

    def document(self, result: Result[D]) -> D:
        """Return the result's document, and send its headers with the response."""
        self.headers |= result.headers
        return result.document

    async def request(self, parse: Callable[[bytes], T]) -> T:
        """Return the call's only message, parsed by `parse`. Raise ApiError."""
        tenant_id = None if self.caller is None else self.caller.tenant_id
        message = await self.stream.message(self.reserved)
        parsed = await parse_body(self.services.body_threads, tenant_id, parse, message)
        self.reserved.shrink_to(0)
        return parsed

    def messages(self, limit: int, pace: Pace) -> AsyncIterator[bytes]:
        """Yield all messages of a client's stream, of at most `limit` bytes in total."""
        return self.stream.messages(limit, pace, self.reserved)
