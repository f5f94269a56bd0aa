"""The process's connection to Redis: a response within the time budget, or an error.

redis-py would retry ten times and wait five seconds; both are off. The deadline is kept here, over everything that a
call does: waiting for a connection, connecting, loading a script.
"""

from collections.abc import Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from loragate.adapter_store.notices.redis import no_retries
from loragate.gateway.resilience.circuit_breaker import CircuitBreaker
from loragate.gateway.resilience.timeouts import within

BUDGET = 0.05  # seconds
_MAX_CONNECTIONS = 32


class RedisUnavailable(Exception):
    """Redis is slow or gone, or cannot do what it was asked to do."""


class RedisLink:
    """Connects on first use. Calls `changed` with True when Redis is given up for a while, and with False when it is
    back."""

    def __init__(
        self,
        url: str,
        changed: Callable[[bool], None] = lambda unavailable: None,
        *,
        budget: float = BUDGET,
        prefix: str = "loragate",
    ) -> None:
        """Raise ValueError for an invalid URL of a Redis server."""
        self.prefix = prefix  # of all names in Redis
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_MAX_CONNECTIONS,
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=no_retries(),
        )
        self.client = Redis(connection_pool=pool)
        self.breaker = CircuitBreaker(changed)
        self._budget = budget

    def script(self, text: str) -> AsyncScript:
        """Register a script for repeated runs; its text is only sent when Redis does not have it."""
        return self.client.register_script(text)

    async def run(self, script: AsyncScript, keys: list[str], arguments: list[str | bytes]) -> Any:
        """Return what the script returns. Raise RedisUnavailable, at once while the circuit breaker is open."""
        if not self.breaker.allows_call():
            raise RedisUnavailable("the circuit breaker is open")
        try:
            response = await within(self._budget, script(keys=keys, args=arguments))
        except (RedisError, OSError, TimeoutError) as error:
            self.breaker.failed()
            raise RedisUnavailable(type(error).__name__) from error
        self.breaker.succeeded()
        return response

    async def close(self) -> None:
        """Disconnect."""
        await self.client.aclose()
        await self.client.connection_pool.disconnect()
