"""Adapters on the device: paged in from host memory on demand, out least recently used first, never while in use.

Storage → host: a reader thread reads, checks and lays out an adapter's files. Host → device: a copier thread fills
pages that were set aside for it; on a CPU there is nothing to copy. Neither stops the step loop, which calls all
methods here, between steps.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from torch import Tensor

from loragate.engine.adapters.arena import PAGE, AdapterArena, Run
from loragate.engine.adapters.host_tier import HostTier
from loragate.engine.layers.patch import HostAdapter, Patch, Patchable, views
from loragate.engine.runtime.copy_stream import Event, Mark
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence, SlotLease

_READS_AT_ONCE = 4


class StaleSlot(Exception):
    """A sequence's slot was given to another adapter under it: it must not decode."""


class AdapterTooLarge(Exception):
    """This adapter takes more of the device's memory than there is, or than one may take; the message says which."""


@dataclass(eq=False, slots=True)
class Slot:
    """A place in the tables of the base model's modules, for one adapter."""

    index: int
    key: AdapterKey | None = None
    generation: int = 0  # counts the adapters that were here
    references: int = 0  # sequences in flight
    resident: bool = False  # False while its pages are being filled
    promised_to: Sequence | None = None  # whose request loaded it, until it was first used
    last_used: int = 0
    read_until: Event | None = None  # on the device, behind the last step of a sequence in flight
    runs: tuple[Run, ...] = ()
    modules: tuple[Patchable, ...] = ()
    invocation: tuple[int, ...] | None = None  # the adapter's, see HostAdapter
    rank: int = 0  # the adapter's, see HostAdapter

    @property
    def unused(self) -> bool:
        """Nothing in flight, nothing on its way in."""
        return self.references == 0 and (self.resident or self.key is None)


@dataclass(frozen=True, slots=True)
class Resident:
    """An adapter on the device."""

    key: AdapterKey
    slot: int
    sequences: int  # in flight on it
    pinned: bool
    rank: int  # the largest of its modules


@dataclass(frozen=True, slots=True)
class Copy:
    """Work for the copier: fill the slot's pages, off the step loop, once the device has passed the events `after`."""

    slot: int
    generation: int
    host: HostAdapter
    arena: AdapterArena
    runs: tuple[Run, ...]
    after: tuple[Event, ...] = ()

    def pieces(self, most: int) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Bytes of the host's memory, at most so many at once, and the places on the device that they go to, in order
        and side by side."""
        start = stop = 0
        targets: list[Tensor] = []
        for run, size in zip(self.runs, self.host.sizes, strict=True):
            for target in self.arena.memory(run)[:size].split(most):
                if stop + target.nbytes - start > most:
                    yield self.host.memory[start:stop], targets
                    start, targets = stop, []
                targets.append(target)
                stop += target.nbytes
        if targets:
            yield self.host.memory[start:stop], targets

    def patches(self) -> dict[Patchable, Patch]:
        """As they will lie on the device."""
        pairs = zip(self.host.patches.items(), self.runs, strict=True)
        return {m: patch.on(views(self.arena.memory(run), patch.tensors)) for (m, patch), run in pairs}


@dataclass(slots=True)
class PoolCounters:
    """Totals since the start."""

    loads: int = 0  # host to device
    reads: int = 0  # storage to host; the other loads found the adapter there
    evictions: int = 0


Waiter = Sequence | None
"""Who waits for an adapter: a sequence, or None for a pin."""


class AdapterPool:
    """`request_read` starts a read, which ends in `read` or `failed`; `request_copy` a copy, which ends in `copied`."""

    def __init__(
        self,
        slots: int,
        arena: AdapterArena,
        host: HostTier,
        request_read: Callable[[AdapterKey], None],
        request_copy: Callable[[Copy], None],
        max_full_weight_bytes: int | None = None,
        mark: Mark = lambda: None,
    ) -> None:
        self._slots = [Slot(i) for i in range(slots)]
        self._by_key: dict[AdapterKey, Slot] = {}
        self._arena = arena
        self._max_full_weight_bytes = max_full_weight_bytes or arena.total * PAGE // 2
        self.host = host
        self._request_read = request_read
        self._request_copy = request_copy
        self._mark = mark
        self._late: list[Event] = []  # behind steps that may still read what left since the last copy
        self._reading: dict[AdapterKey, set[Waiter]] = {}  # being read, for these
        self._awaiting: dict[AdapterKey, set[Waiter]] = {}  # in host memory, for these, which have no slot yet
        self._pinned: frozenset[AdapterKey] = frozenset()
        self._retiring: set[AdapterKey] = set()
        self._clock = count(1)
        self.counters = PoolCounters()
        self.loaded: Callable[[AdapterKey], None] = lambda _: None
        """Called for every adapter that came to the device."""

    @property
    def used(self) -> int:
        return len(self._by_key)

    @property
    def total(self) -> int:
        return len(self._slots)

    @property
    def device_bytes(self) -> tuple[int, int]:
        """Used and total, in whole pages."""
        return self._arena.used * PAGE, self._arena.total * PAGE

    def residents(self) -> list[Resident]:
        """The adapters on the device; may be called from any thread."""
        return [
            Resident(key, slot.index, slot.references, key in self._pinned, slot.rank)
            for slot in self._slots
            if slot.resident and (key := slot.key) is not None
        ]

    def acquire(self, key: AdapterKey) -> SlotLease | None:
        """Hold the adapter's slot if it is resident; it stays until `release`."""
        slot = self._by_key.get(key)
        if slot is None or not slot.resident:
            return None
        slot.references += 1
        slot.promised_to = None
        slot.last_used = next(self._clock)
        return SlotLease(slot.index, slot.generation, slot.invocation)

    def release(self, lease: SlotLease) -> None:
        slot = self._slots[lease.slot]
        assert slot.generation == lease.generation
        assert slot.references > 0
        slot.references -= 1
        if not slot.references:
            slot.read_until = self._mark()

    def check(self, lease: SlotLease) -> None:
        """Raises StaleSlot if the slot no longer holds the adapter that was leased."""
        slot = self._slots[lease.slot]
        if slot.generation != lease.generation or not slot.resident:
            raise StaleSlot(f"slot {lease.slot} changed from generation {lease.generation} to {slot.generation}")

    def want(self, key: AdapterKey, sequence: Waiter, *, overdue: bool) -> bool:
        """See to it that the adapter comes; False when it must wait for others to leave.

        An overdue sequence may also take a slot that was loaded for another one and not used yet.
        """
        if key in self._by_key:
            return True
        host = self.host.get(key)
        if host is None:
            return self._read(key, sequence)
        self._awaiting.setdefault(key, set()).add(sequence)
        if not self._place(key, host, sequence, overdue=overdue):
            return False
        self._settle(key)
        return True

    def forget(self, sequence: Sequence) -> None:
        """The sequence is gone: what was loaded for it alone may be evicted."""
        key = sequence.request.adapter
        if key is None:
            return
        slot = self._by_key.get(key)
        if slot is not None and slot.promised_to is sequence:
            slot.promised_to = None
        self._wait_no_more(key, sequence)

    def pin(self, keys: Iterable[AdapterKey]) -> None:
        """Keep these on the device once they are there, and no others; at least one slot stays free for the rest."""
        wanted = frozenset(list(dict.fromkeys(keys))[: self.total - 1])
        for key in self._pinned - wanted:
            self._wait_no_more(key, None)
        self._pinned = wanted
        self.fetch_pinned()

    def fetch_pinned(self) -> None:
        """Bring pinned adapters that are not on the device; to be called whenever something was read or left."""
        for key in self._pinned - self._by_key.keys():
            self.want(key, None, overdue=False)

    def retire(self, keys: Iterable[AdapterKey]) -> None:
        """These are no more: see `let_go`. A pin on one is gone."""
        self._retiring.update(keys)
        for key in self._pinned & self._retiring:
            self._wait_no_more(key, None)
        self._pinned -= self._retiring

    def let_go(self, is_wanted: Callable[[AdapterKey], bool]) -> list[AdapterKey]:
        """Those of the retired that left device and host memory now; the others wait for whoever uses or wants them."""
        gone = [key for key in self._retiring if not self._is_used(key) and not is_wanted(key)]
        for key in gone:
            slot = self._by_key.get(key)
            if slot is not None:
                self._empty(slot)
            self.host.remove(key)
        self._retiring.difference_update(gone)
        return gone

    def _is_used(self, key: AdapterKey) -> bool:
        slot = self._by_key.get(key)
        coming = key in self._reading or key in self._awaiting
        return coming or (slot is not None and not slot.unused)

    def read(self, key: AdapterKey, host: HostAdapter) -> None:
        """A read ended well. Raises AdapterTooLarge; then the adapter is as if the read had failed."""
        awaited_by = self._reading.pop(key)
        pages = self._arena.pages_for(host.sizes)
        if pages > self._arena.total:
            room = self._arena.total * PAGE
            raise AdapterTooLarge(f"it takes {pages * PAGE} bytes, and engine.adapter_device_bytes is {room}")
        if host.full_weight_bytes > self._max_full_weight_bytes:
            raise AdapterTooLarge(
                f"the modules that it brings whole (modules_to_save) take {host.full_weight_bytes} bytes, and "
                f"engine.max_full_weight_bytes is {self._max_full_weight_bytes}; train LoRA on them instead"
            )
        self.counters.reads += 1
        if awaited_by:
            self._awaiting[key] = awaited_by
        self.host.put(key, host, awaited=bool(awaited_by))

    def failed(self, key: AdapterKey) -> None:
        """A read failed. A pin on it is gone, or it would be tried for ever."""
        self._reading.pop(key, None)
        self._pinned -= {key}

    def copied(self, copy: Copy, patches: Mapping[Patchable, Patch]) -> None:
        """A copy ended."""
        slot = self._slots[copy.slot]
        assert slot.generation == copy.generation, "a slot that is being filled is not given away"
        self._install(slot, patches, copy.host.invocation)

    def copy_failed(self, copy: Copy) -> AdapterKey:
        """A copy failed: the slot is free again. Returns whose it was."""
        slot = self._slots[copy.slot]
        assert slot.key is not None
        key = slot.key
        self._empty(slot)
        return key

    def _read(self, key: AdapterKey, sequence: Waiter) -> bool:
        if key not in self._reading:
            if len(self._reading) >= _READS_AT_ONCE or self.host.crowded:
                return False
            self._reading[key] = set()
            self._request_read(key)
        self._reading[key].add(sequence)
        return True

    def _wait_no_more(self, key: AdapterKey, waiter: Waiter) -> None:
        if key in self._reading:
            self._reading[key].discard(waiter)
        waiting = self._awaiting.get(key)
        if waiting is not None:
            waiting.discard(waiter)
            if not waiting:
                self._settle(key)

    def _settle(self, key: AdapterKey) -> None:
        self._awaiting.pop(key, None)
        self.host.settled(key)

    def _place(self, key: AdapterKey, host: HostAdapter, sequence: Waiter, *, overdue: bool) -> bool:
        """Find a slot and pages for a host copy, evicting as few as can be, and bring it there or start to."""
        evictable = [s for s in self._slots if self._may_leave(s, overdue=overdue)]
        evictable.sort(key=lambda s: (s.key is not None, s.last_used))
        room = self._arena.free + sum(r.count for s in evictable for r in s.runs)
        if not evictable or room < self._arena.pages_for(host.sizes):
            return False
        slot = evictable[0]
        self._empty(slot)
        runs = self._arena.allocate(host.sizes)
        for other in evictable[1:]:
            if runs is not None:
                break
            self._empty(other)
            runs = self._arena.allocate(host.sizes)
        if runs is None:
            return False  # free pages lie scattered between adapters in use
        slot.key, slot.promised_to, slot.runs, slot.rank = key, sequence, runs, host.rank
        self._by_key[key] = slot
        if self._arena.in_host:
            self._install(slot, host.patches, host.invocation)
        else:
            after, self._late = tuple(self._late), []  # copies come one behind the other: the next waits as well
            self._request_copy(Copy(slot.index, slot.generation, host, self._arena, runs, after))
        return True

    def _install(self, slot: Slot, patches: Mapping[Patchable, Patch], invocation: tuple[int, ...] | None) -> None:
        """From now on the slot's rows get this adapter."""
        assert slot.key is not None
        for module, patch in patches.items():
            module.put(slot.index, patch)
        slot.modules = tuple(patches)
        slot.invocation = invocation
        slot.resident = True
        slot.last_used = next(self._clock)
        self.counters.loads += 1
        self.loaded(slot.key)

    def _may_leave(self, slot: Slot, *, overdue: bool) -> bool:
        return slot.unused and (overdue or slot.promised_to is None) and slot.key not in self._pinned

    def _empty(self, slot: Slot) -> None:
        if slot.key is not None:
            del self._by_key[slot.key]
            self.counters.evictions += slot.resident
        for module in slot.modules:
            module.clear(slot.index)
        self._arena.release(slot.runs)
        if slot.read_until is not None:
            self._late.append(slot.read_until)
            slot.read_until = None
        slot.key, slot.promised_to, slot.resident, slot.runs, slot.modules = None, None, False, (), ()
        slot.generation += 1
