"""Change notices as the settings want them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.notices.redis import redis_notices
from loragate.gateway.config.gateway import GatewayConfig


@asynccontextmanager
async def opened_notices(config: GatewayConfig) -> AsyncIterator[Notices]:
    """Between processes where there is a Redis, else within this one."""
    if config.redis_url is None:
        yield LocalNotices()
        return
    async with redis_notices(config.redis_url) as notices:
        yield notices
