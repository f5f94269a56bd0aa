"""Turns of tenants whose imports wait for a place."""

import asyncio

from loragate.gateway.imports.turns import Turns


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Bench:
    """Imports that end on command; `began` has their names in order."""

    def __init__(self, places: int) -> None:
        self.turns = Turns(places)
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    async def begin(self, name: str) -> asyncio.Task[None]:
        """Begin an import whose tenant is the first letter of its name."""
        self.ends[name] = asyncio.Event()
        task = asyncio.create_task(self._run(name))
        await _settle()
        return task

    async def _run(self, name: str) -> None:
        async with self.turns.place(name[0]):
            self.began.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await _settle()


async def test_tenants_take_turns() -> None:
    """A tenant with many imports has no more of them running than others that want to."""
    bench = Bench(2)
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        await bench.begin(name)
    assert bench.began == ["a1", "a2"]
    for name in ("a1", "a2", "b1", "a3", "c1", "b2", "a4"):
        await bench.end(name)
    assert bench.began == ["a1", "a2", "b1", "a3", "c1", "b2", "a4"]
    assert (bench.turns._free, bench.turns._running, bench.turns._waiting) == (2, {}, {})


async def test_one_that_is_cancelled_leaves_its_place_to_others() -> None:
    bench = Bench(1)
    await bench.begin("a1")
    waiting, chosen, last = [await bench.begin(name) for name in ("b1", "c1", "d1")]
    waiting.cancel()
    await _settle()
    bench.ends["a1"].set()
    await asyncio.sleep(0)  # the place is given to `c1`, which has not noticed
    chosen.cancel()
    await _settle()
    assert bench.began in (["a1", "d1"], ["a1", "c1", "d1"])
    await bench.end("d1")
    await asyncio.gather(last)
    assert (bench.turns._free, bench.turns._waiting) == (1, {})
