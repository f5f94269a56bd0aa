"""A thread for disk work, so that it blocks no event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Disk:
    """Runs calls in one thread, in order and without overlap."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage-spool")

    async def run(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Return or raise what `work` does."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(*arguments, **options))

    def close(self) -> None:
        """Wait for the current call and stop the thread."""
        self._thread.shutdown()
