"""One call, as the functions behind the methods see it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.grpc.connection import Wire
from loragate.gateway.http.bodies import parsed
from loragate.gateway.http.body_limits import Pace
from loragate.gateway.http.context import RequestContext
from loragate.gateway.services import Services

T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """`headers` go out as initial metadata with the first message. `tenant` is who calls, where a key is needed."""

    services: Services
    context: RequestContext
    wire: Wire
    headers: dict[str, str] = field(default_factory=dict)
    caller: TenantPrincipal | None = None

    @property
    def tenant(self) -> TenantPrincipal:
        assert self.caller is not None, "a public method asks who calls"
        return self.caller

    @property
    def request_id(self) -> str:
        return self.context.request_id

    async def request(self, parse: Callable[[bytes], T]) -> T:
        """The call's one message, as `parse` reads it. Raises ApiError."""
        return await parsed(parse, await self.wire.message())

    def messages(self, limit: int, pace: Pace) -> AsyncIterator[bytes]:
        """All messages of a client's stream, of at most `limit` bytes together."""
        return self.wire.messages(limit, pace)
