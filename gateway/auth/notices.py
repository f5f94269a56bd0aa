"""The change notices that the settings ask for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loragate.adapter_store.notices.notices import LocalNotices, Notices
from loragate.adapter_store.notices.redis import redis_notices
from loragate.gateway.config.gateway import GatewayConfig


@asynccontextmanager
async def open_notices(config: GatewayConfig) -> AsyncIterator[Notices]:
    """Yield notices between processes if Redis is configured, else within this process."""
    if config.redis_url is None:
        yield LocalNotices()
        return
    async with redis_notices(config.redis_url, config.redis_prefix) as notices:
        yield notices
