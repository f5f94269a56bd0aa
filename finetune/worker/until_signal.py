"""Running a worker's process until it receives a signal."""

import asyncio
import signal
from collections.abc import Coroutine


def run_until_signal(work: Coroutine[object, object, None]) -> None:
    """Run `work`, which SIGTERM and SIGINT cancel; return once it has cleaned up. Raise what it raises."""
    asyncio.run(_until_signal(work))


async def _until_signal(work: Coroutine[object, object, None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
