"""Background jobs that run periodically until they are cancelled."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from loragate.adapter_store.errors import StoreError

_SOON_SECONDS = 60.0


async def periodic(
    failure: str,
    work: Callable[[], Awaitable[object]],
    every: float,
    *,
    log: logging.Logger,
    soon: bool = False,
) -> None:
    """Run `work` every `every` seconds, give or take half of that, so that several gateways do so at different times.

    With `soon` it runs for the first time within a minute: a rare job of a gateway that is often restarted would
    otherwise never run. Errors are logged as `failure`; the next run follows.
    """
    wait = random.uniform(0, _SOON_SECONDS) if soon else _around(every)  # noqa: S311
    while True:
        await asyncio.sleep(wait)
        wait = _around(every)
        try:
            await work()
        except StoreError as error:
            log.warning("%s: %s", failure, error)
        except Exception:
            log.exception(failure)


def _around(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311


async def run_write_loop(write: Callable[[], Awaitable[None]], interval: float) -> None:
    """Write every `interval` seconds until cancelled, and then once more."""
    try:
        while True:
            await asyncio.sleep(interval)
            await write()
    finally:
        await write()
