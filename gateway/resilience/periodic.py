"""Background jobs that run periodically until they are cancelled."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from loragate.adapter_store.errors import StoreError


async def periodic(
    failure: str,
    work: Callable[[], Awaitable[object]],
    every: float,
    *,
    log: logging.Logger,
    jitter: float = 0.5,
    at_once: bool = False,
) -> None:
    """Run `work` every `every` seconds, give or take the fraction `jitter` of that, so that several gateways do so at
    different times. `at_once` runs it before the first wait. Errors are logged as `failure`; the next run follows."""
    wait = not at_once
    while True:
        if wait:
            await asyncio.sleep(every * random.uniform(1 - jitter, 1 + jitter))  # noqa: S311
        wait = True
        try:
            await work()
        except StoreError as error:
            log.warning("%s: %s", failure, error)
        except Exception:
            log.exception(failure)


async def run_write_loop(write: Callable[[], Awaitable[None]], interval: float) -> None:
    """Write every `interval` seconds until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(interval)
            await write()
    finally:
        await write()
