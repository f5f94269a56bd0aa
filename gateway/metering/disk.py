"""Work on the disk, off the event loop, one step at a time."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Disk:
    """One thread: what it is given is done in order, and nothing of it overlaps."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage-spool")

    async def do(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """What `work` returns or raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments, **options))

    def close(self) -> None:
        """Waits for what it is doing."""
        self._thread.shutdown()
