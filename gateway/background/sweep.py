"""Reclaiming what nobody needs, by whichever gateway is there."""

import asyncio
import logging
import random

from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store

log = logging.getLogger(__name__)

_EVERY_SECONDS = 3600.0


async def keep_sweeping(store: Store, every: float = _EVERY_SECONDS) -> None:
    """Until it is cancelled. Several gateways do so at different times, and each finds little to do."""
    while True:
        await asyncio.sleep(every * random.uniform(0.5, 1.5))  # noqa: S311
        try:
            report = await store.sweep()
        except StoreError as error:
            log.warning("the sweep failed: %s", error)
        else:
            if report.adapters or report.pieces:
                log.info("swept %d adapters and %d pieces of files", report.adapters, report.pieces)
