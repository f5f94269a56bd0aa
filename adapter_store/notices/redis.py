"""Change notices between processes, through Redis publish/subscribe."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from loragate.adapter_store.notices.notices import Listener, LocalNotices

log = logging.getLogger(__name__)

_SEND_SECONDS = 0.5
_IDLE_SECONDS = 2.0  # after this time without a message, Redis is pinged
_RECONNECT_SECONDS = 0.5
_FAULTS = (RedisError, OSError, TimeoutError)


@asynccontextmanager
async def redis_notices(url: str, prefix: str = "loragate") -> AsyncIterator["RedisNotices"]:
    """Listen for notices while the block runs. Installations that share a Redis have a `prefix` each."""
    notices = RedisNotices(url, prefix)
    listening = asyncio.create_task(notices.listen(), name="notices")
    try:
        yield notices
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await notices.close()


class RedisNotices:
    """Notices between processes. This process's own listeners are notified at once, also without Redis."""

    def __init__(self, url: str, prefix: str) -> None:
        self._local = LocalNotices()
        self._channel = f"{prefix}:notices"  # of all of Redis: a database's number does not separate channels
        # Timeouts are applied by the callers: with its own timeout redis-py uses `asyncio.wait_for`, which before
        # Python 3.12 can lose a cancellation, and closing would then wait forever.
        self._redis = Redis.from_url(url, socket_timeout=None, socket_connect_timeout=None, retry=no_retries())

    async def announce(self, tenant_id: str) -> None:
        self._local.notify(tenant_id)
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._redis.publish(self._channel, tenant_id)
        except _FAULTS as error:
            log.warning("a change notice could not be sent: %s", type(error).__name__)

    def subscribe(self, listener: Listener) -> None:
        self._local.subscribe(listener)

    async def listen(self) -> None:
        """Pass on the notices of other processes until cancelled; reconnect when necessary."""
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    async with asyncio.timeout(_SEND_SECONDS):
                        await channel.subscribe(self._channel)
                    await self._receive(channel)
            except _FAULTS as error:
                log.warning("change notices are not received: %s", type(error).__name__)
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _receive(self, channel: PubSub) -> None:
        """Receive messages; raises TimeoutError when Redis does not respond."""
        pinged = False
        while True:
            async with asyncio.timeout(_IDLE_SECONDS + _SEND_SECONDS):
                message = await channel.get_message(timeout=_IDLE_SECONDS)
            if message is not None:
                pinged = False
                self._pass_on(message)
            elif pinged:
                raise TimeoutError
            else:
                pinged = True
                async with asyncio.timeout(_SEND_SECONDS):
                    await channel.ping()

    def _pass_on(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self._local.notify(None)  # earlier notices may have been missed
        elif message["type"] == "message":
            self._local.notify(message["data"].decode())


def no_retries() -> Retry:
    """Return a policy that does not retry, for a client or a connection pool."""
    return Retry(NoBackoff(), 0)
