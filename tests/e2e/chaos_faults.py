"""The faults of the chaos run."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from .workers import Workers

Fault = Callable[[], Coroutine[Any, Any, None]]


class Faults:
    """Injects each fault once in random order, then random ones."""

    def __init__(self, workers: Workers, rng: random.Random) -> None:
        self._workers = workers
        self._random = rng
        self.done: Counter[str] = Counter()
        self._faults: dict[str, tuple[int, Fault]] = {
            "gateway killed": (4, self._kill_gateway),
            "engine killed": (2, self._kill_engine),
            "engine stopped for a while": (1, self._stop_engine),
            "Redis killed": (2, self._kill_redis),
            "Redis stopped for a while": (2, self._stop_redis),
        }

    async def strike(self, seconds: float) -> None:
        """Inject faults for `seconds`. Afterwards everything runs or is starting again."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        names = list(self._faults)
        waiting = self._random.sample(names, len(names))
        while loop.time() < end:
            name = waiting.pop() if waiting else self._random.choices(names, [self._faults[n][0] for n in names])[0]
            self.done[name] += 1
            await self._faults[name][1]()
            await asyncio.sleep(self._random.uniform(1, 6))

    async def _kill_gateway(self) -> None:
        self._signal(self._random.choice(self._workers.pids), signal.SIGKILL)

    async def _kill_engine(self) -> None:
        self._signal(self._engine, signal.SIGKILL)

    async def _stop_engine(self) -> None:
        engine = self._engine
        self._signal(engine, signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.5, 10))
        self._signal(engine, signal.SIGCONT)

    async def _kill_redis(self) -> None:
        self._workers.redis.stop()
        await asyncio.sleep(self._random.uniform(0, 4))
        await asyncio.to_thread(self._workers.redis.start)

    async def _stop_redis(self) -> None:
        self._workers.redis.pause()
        await asyncio.sleep(self._random.uniform(0.05, 4))
        self._workers.redis.resume()

    @property
    def _engine(self) -> int:
        pid: int = self._workers.server.runtime["pids"]["engine"]
        return pid

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
