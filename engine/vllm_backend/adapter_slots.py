"""Adapters in vLLM's slots. This part alone decides which are there, so vLLM never evicts or reloads one by itself.

vLLM is given at least one slot more than are used here: the CPU kernels of 0.32 read the last slot for rows without an
adapter, which must therefore stay empty (see docs/decisions/0071).
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from loragate.engine.adapters.files import AdapterFiles, AdapterUnavailable
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.vllm_backend.llm import CallRejected, Llm, LlmDied, Lora
from loragate.engine.vllm_backend.plain_adapter import PlainAdapter

log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Place:
    """A slot that is taken by an adapter, or by one that is being loaded: `lora` is None until it is there."""

    key: AdapterKey
    lora: Lora | None = None
    rank: int = 0
    token_cost: float = 1.0
    references: int = 0  # calls in flight
    last_used: int = 0


class AdapterSlots:
    """Loads, counts and evicts adapters. Runs on the event loop.

    `loaded` and `failed` are called when a load ends, `evicted` when an adapter loses its slot, `died` with vLLM.
    """

    def __init__(self, slots: int, llm: Llm, files: AdapterFiles[PlainAdapter], numbers: Iterator[int]) -> None:
        self.total = slots
        self._llm = llm
        self._files = files
        self._places: dict[AdapterKey, Place] = {}
        self._numbers = numbers
        self._clock = count(1)
        self._pinned: frozenset[AdapterKey] = frozenset()
        self._retiring: set[AdapterKey] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()  # first come, first served: what leaves has left before anything else enters
        self._inside: set[int] = set()  # numbers of the adapters in vLLM
        self.loads = self.reads = self.evictions = 0
        self.loaded: Callable[[AdapterKey], None] = lambda key: None
        self.failed: Callable[[AdapterKey, str], None] = lambda key, reason: None
        self.evicted: Callable[[AdapterKey], None] = lambda key: None
        self.died: Callable[[], None] = lambda: None

    @property
    def used(self) -> int:
        return len(self._places)

    def places(self) -> list[Place]:
        """Return the adapters that are loaded."""
        return [place for place in self._places.values() if place.lora is not None]

    def is_pinned(self, key: AdapterKey) -> bool:
        return key in self._pinned

    def is_resident(self, key: AdapterKey) -> bool:
        place = self._places.get(key)
        return place is not None and place.lora is not None

    def token_cost(self, key: AdapterKey) -> float:
        """Return the cost of a token under a resident adapter, see `adapters.token_cost`."""
        return self._places[key].token_cost

    def acquire(self, key: AdapterKey) -> Place:
        """Hold a resident adapter until `release`."""
        place = self._places[key]
        assert place.lora is not None
        place.references += 1
        place.last_used = next(self._clock)
        return place

    def release(self, place: Place) -> None:
        """End one hold. vLLM must have ended the call before."""
        assert place.references > 0
        place.references -= 1

    def request(self, key: AdapterKey, keep: Callable[[AdapterKey], bool]) -> bool:
        """Request an adapter; return False if every slot is used by one in flight, pinned or to be kept."""
        if key in self._places:
            return True
        victim: Place | None = None
        if self.used >= self.total:
            victim = min(
                (p for p in self.places() if not p.references and p.key not in self._pinned and not keep(p.key)),
                key=lambda place: place.last_used,
                default=None,
            )
            if victim is None:
                return False
            del self._places[victim.key]
            self.evictions += 1
            self.evicted(victim.key)
        place = self._places[key] = Place(key, last_used=next(self._clock))
        self._start(self._load(place, victim))
        return True

    def pin(self, keys: Iterable[AdapterKey]) -> None:
        """Keep these adapters once they are loaded, in place of those pinned before; one slot stays for the others."""
        self._pinned = frozenset(list(dict.fromkeys(keys))[: self.total - 1])
        self.request_pinned()

    def request_pinned(self) -> None:
        """Request pinned adapters that are not there."""
        for key in self._pinned - self._places.keys():
            self.request(key, lambda _: True)

    def preload(self, keys: Iterable[AdapterKey]) -> None:
        """Fetch adapters to the disk, from which vLLM reads them."""
        for key in keys:
            self._start(self._files.fetch_ahead(key))

    def retire(self, keys: Iterable[AdapterKey]) -> None:
        """Mark adapters as deleted, see `release_retired`, and unpin them."""
        self._retiring.update(keys)
        self._pinned -= self._retiring

    def release_retired(self, is_wanted: Callable[[AdapterKey], bool]) -> None:
        """Release the retired adapters that nothing uses or waits for, on every tier."""
        for key in list(self._retiring):
            place = self._places.get(key)
            loading = place is not None and place.lora is None
            if loading or (place is not None and place.references) or is_wanted(key):
                continue
            self._retiring.discard(key)
            if place is not None and place.lora is not None:
                del self._places[key]
                self.evictions += 1
                self._start(self._remove(place.lora))
            self._files.discard(key)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _load(self, place: Place, victim: Place | None) -> None:
        """Load an adapter into the slot of another, or into a free one."""
        key = place.key
        try:
            if victim is not None and victim.lora is not None:
                await self._leave(victim.lora)
            plain = await self._files.load(key)
            self.reads += 1
            lora = Lora(key.opaque_id, next(self._numbers), plain.folder)
            await self._enter(lora)
        except (AdapterUnavailable, CallRejected) as error:
            self._fail(key, str(error))
        except LlmDied:
            self.died()
        except Exception as error:
            log.exception("loading adapter %s failed", key.digest)
            self._fail(key, f"the engine failed to load it ({type(error).__name__})")
        else:
            place.lora, place.rank, place.token_cost = lora, plain.rank, plain.token_cost
            self.loads += 1
            self.loaded(key)

    def _fail(self, key: AdapterKey, reason: str) -> None:
        """Free the slot. It also removes a pin, which would otherwise retry forever."""
        self._places.pop(key, None)
        self._pinned -= {key}
        self.failed(key, reason)

    async def _enter(self, lora: Lora) -> None:
        """Load an adapter into vLLM; its files are not read again."""
        async with self._changing:
            assert len(self._inside) < self.total, "a slot of vLLM's stays empty"
            try:
                await self._llm.add_lora(lora)
                self._inside.add(lora.number)
            finally:
                await asyncio.to_thread(shutil.rmtree, lora.folder, ignore_errors=True)

    async def _leave(self, lora: Lora) -> None:
        async with self._changing:
            await self._llm.remove_lora(lora.number)
            self._inside.discard(lora.number)

    async def _remove(self, lora: Lora) -> None:
        try:
            await self._leave(lora)
        except LlmDied:
            self.died()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
