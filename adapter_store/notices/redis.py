"""Change notices between processes, by Redis' publish and subscribe."""

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

_CHANNEL = "loragate:notices"
_SEND_SECONDS = 0.5
_SILENCE_SECONDS = 2.0  # after which the other end is asked whether it is still there
_RECONNECT_SECONDS = 0.5
_FAULTS = (RedisError, OSError, TimeoutError)


@asynccontextmanager
async def redis_notices(url: str) -> AsyncIterator["RedisNotices"]:
    """Heard for as long as the block lasts."""
    notices = RedisNotices(url)
    listening = asyncio.create_task(notices.listen(), name="notices")
    try:
        yield notices
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await notices.close()


class RedisNotices:
    """What this process announces is heard here at once, also without Redis."""

    def __init__(self, url: str) -> None:
        self._local = LocalNotices()
        # Deadlines are kept out here: with a timeout of its own redis-py sends through `asyncio.wait_for`, which before
        # Python 3.12 loses a cancel that comes as it ends, and whoever closes this would wait for ever.
        self._redis = Redis.from_url(url, socket_timeout=None, socket_connect_timeout=None, retry=no_retries())

    async def announce(self, tenant_id: str) -> None:
        self._local.notify(tenant_id)
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._redis.publish(_CHANNEL, tenant_id)
        except _FAULTS as error:
            log.warning("a change notice could not be sent: %s", type(error).__name__)

    def subscribe(self, listener: Listener) -> None:
        self._local.subscribe(listener)

    async def listen(self) -> None:
        """Passes on what other processes announce, until cancelled; connects again whenever it must."""
        while True:
            try:
                async with self._redis.pubsub() as channel:
                    async with asyncio.timeout(_SEND_SECONDS):
                        await channel.subscribe(_CHANNEL)
                    await self._receive(channel)
            except _FAULTS as error:
                log.warning("change notices are not heard: %s", type(error).__name__)
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _receive(self, channel: PubSub) -> None:
        """Raises TimeoutError when the other end is gone."""
        asked = False
        while True:
            async with asyncio.timeout(_SILENCE_SECONDS + _SEND_SECONDS):
                message = await channel.get_message(timeout=_SILENCE_SECONDS)
            if message is not None:
                asked = False
                self._pass_on(message)
            elif asked:
                raise TimeoutError
            else:
                asked = True
                async with asyncio.timeout(_SEND_SECONDS):
                    await channel.ping()

    def _pass_on(self, message: dict[str, Any]) -> None:
        if message["type"] == "subscribe":
            self._local.notify(None)  # what was announced before this moment was missed
        elif message["type"] == "message":
            self._local.notify(message["data"].decode())


def no_retries() -> Retry:
    """Of a client or a pool of connections."""
    return Retry(NoBackoff(), 0)
