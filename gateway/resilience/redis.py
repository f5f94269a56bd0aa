"""The process's link to Redis: an answer within the budget, or none.

redis-py would retry ten times and wait five seconds; both are off. The deadline is kept out here, over everything
that a call does: waiting for a connection, connecting, loading a script.
"""

from collections.abc import Callable
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.commands.core import AsyncScript
from redis.exceptions import RedisError

from loragate.adapter_store.notices.redis import only_once
from loragate.gateway.resilience.circuit_breaker import CircuitBreaker
from loragate.gateway.resilience.timeouts import within

BUDGET = 0.05  # seconds
_MOST_CONNECTIONS = 32


class RedisAway(Exception):
    """Slow, gone, or not able to do what it was asked."""


class RedisLink:
    """`changed` is told when Redis is given up for a while (True), and when it is back (False)."""

    def __init__(
        self, url: str, changed: Callable[[bool], None] = lambda away: None, *, budget: float = BUDGET
    ) -> None:
        """Raises ValueError for what is no URL of a Redis. Connects when it is first used."""
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_MOST_CONNECTIONS,
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=None,
            retry=only_once(),
        )
        self.client = Redis(connection_pool=pool)
        self.breaker = CircuitBreaker(changed)
        self._budget = budget

    def script(self, text: str) -> AsyncScript:
        """To be run again and again; sent whole only where Redis does not know it."""
        return self.client.register_script(text)

    async def run(self, script: AsyncScript, keys: list[str], arguments: list[str | bytes]) -> Any:
        """What the script returns. Raises RedisAway, at once while the breaker is open."""
        if not self.breaker.lets_through():
            raise RedisAway("given up for the moment")
        try:
            answer = await within(self._budget, script(keys=keys, args=arguments))
        except (RedisError, OSError, TimeoutError) as error:
            self.breaker.failed()
            raise RedisAway(type(error).__name__) from error
        self.breaker.succeeded()
        return answer

    async def close(self) -> None:
        """Hang up."""
        await self.client.aclose()
        await self.client.connection_pool.disconnect()
