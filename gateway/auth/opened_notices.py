"""Change notices as the settings want them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from loragate.adapter_store.notices import LocalNotices, Notices
from loragate.adapter_store.redis_notices import RedisNotices
from loragate.gateway.config import GatewayConfig


@asynccontextmanager
async def opened_notices(config: GatewayConfig) -> AsyncIterator[Notices]:
    """Between processes where there is a Redis, else within this one."""
    if config.redis_url is None:
        yield LocalNotices()
        return
    notices = RedisNotices(config.redis_url)
    listening = asyncio.create_task(notices.listen(), name="notices")
    try:
        yield notices
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        await notices.close()
