"""Adapters on the device: paged in from host memory on demand, evicted least used first, never while in use.

Storage → host: a reader thread reads, checks and lays out an adapter's files. Host → device: a copier thread fills
pages that were reserved for it; on a CPU there is nothing to copy. Neither stops the step loop, which calls all methods
here, between steps.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

from loragate.engine.adapters.arena import PAGE, AdapterArena
from loragate.engine.adapters.host_tier import HostTier
from loragate.engine.adapters.slot import Copy, Resident, Slot, StaleSlot
from loragate.engine.adapters.use_frequency import UseFrequency
from loragate.engine.layers.patch import HostAdapter, Patch, Patchable
from loragate.engine.runtime.copy_stream import Event, Mark
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence, SlotLease

_MAX_READS = 4
_SAMPLE = 64  # uses per slot after which counts of uses are halved


class AdapterTooLarge(Exception):
    """The adapter takes more device memory than there is, or than one adapter may take; the message says which."""


@dataclass(slots=True)
class PoolCounters:
    """Totals since the start."""

    loads: int = 0  # host to device
    reads: int = 0  # storage to host; the other loads found the adapter in host memory
    evictions: int = 0


Waiter = Sequence | None
"""What waits for an adapter: a sequence, or None for a pin."""


class AdapterPool:
    """The adapters on the device, and those on their way there.

    `request_read` starts a read, which ends in `read_done` or `read_failed`; `request_copy` starts a copy, which ends
    in `copy_done` or `copy_failed`.
    """

    def __init__(
        self,
        slots: int,
        arena: AdapterArena,
        host: HostTier,
        request_read: Callable[[AdapterKey], None],
        request_copy: Callable[[Copy], None],
        max_full_weight_bytes: int | None = None,
        mark: Mark = lambda: None,
        frequency: UseFrequency | None = None,
    ) -> None:
        self._slots = [Slot(i) for i in range(slots)]
        self._by_key: dict[AdapterKey, Slot] = {}
        self._arena = arena
        self._max_full_weight_bytes = max_full_weight_bytes or arena.total * PAGE // 2
        self.host = host
        self._request_read = request_read
        self._request_copy = request_copy
        self._mark = mark
        self._pending_events: list[Event] = []  # after steps that may still read what was evicted since the last copy
        self._reading: dict[AdapterKey, set[Waiter]] = {}  # being read, with its waiters
        self._awaiting: dict[AdapterKey, set[Waiter]] = {}  # in host memory without a slot, with its waiters
        self._pinned: frozenset[AdapterKey] = frozenset()
        self._retiring: set[AdapterKey] = set()
        self._clock = count(1)
        self._frequency = frequency or UseFrequency(_SAMPLE * slots)
        self.counters = PoolCounters()
        self.loaded: Callable[[AdapterKey], None] = lambda _: None
        """Called for every adapter that was loaded to the device."""

    @property
    def used(self) -> int:
        return len(self._by_key)

    @property
    def total(self) -> int:
        return len(self._slots)

    @property
    def device_bytes(self) -> tuple[int, int]:
        """Used and total bytes, in whole pages."""
        return self._arena.used * PAGE, self._arena.total * PAGE

    def residents(self) -> list[Resident]:
        """Return the adapters on the device. Thread-safe."""
        return [
            Resident(key, slot.index, slot.references, key in self._pinned, slot.rank)
            for slot in self._slots
            if slot.resident and (key := slot.key) is not None
        ]

    def is_resident(self, key: AdapterKey) -> bool:
        """Return whether the adapter can be acquired."""
        slot = self._by_key.get(key)
        return slot is not None and slot.resident

    def acquire(self, key: AdapterKey) -> SlotLease | None:
        """Hold the adapter's slot if it is resident; it stays until `release`."""
        slot = self._by_key.get(key)
        if slot is None or not slot.resident:
            return None
        slot.references += 1
        slot.reserved_for = None
        slot.last_used = next(self._clock)
        self._frequency.record(key)
        return SlotLease(slot.index, slot.generation, slot.invocation)

    def release(self, lease: SlotLease) -> None:
        slot = self._slots[lease.slot]
        assert slot.generation == lease.generation
        assert slot.references > 0
        slot.references -= 1
        if not slot.references:
            slot.read_until = self._mark()

    def check(self, lease: SlotLease) -> None:
        """Raise StaleSlot if the slot no longer holds the adapter that was leased."""
        slot = self._slots[lease.slot]
        if slot.generation != lease.generation or not slot.resident:
            raise StaleSlot(f"slot {lease.slot} changed from generation {lease.generation} to {slot.generation}")

    def request(self, key: AdapterKey, sequence: Waiter, *, overdue: bool) -> bool:
        """Request the adapter; return False if it must wait for others to be evicted.

        An overdue sequence may also take a slot that was loaded for another one and is still unused.
        """
        if key in self._by_key:
            return True
        host = self.host.get(key)
        if host is None:
            return self._start_read(key, sequence)
        self._awaiting.setdefault(key, set()).add(sequence)
        if not self._place(key, host, sequence, overdue=overdue):
            return False
        self._settle(key)
        return True

    def discard(self, sequence: Sequence) -> None:
        """Remove a sequence that ended: an adapter loaded for it alone may be evicted."""
        key = sequence.request.adapter
        if key is None:
            return
        slot = self._by_key.get(key)
        if slot is not None and slot.reserved_for is sequence:
            slot.reserved_for = None
        self._remove_waiter(key, sequence)

    def pin(self, keys: Iterable[AdapterKey]) -> None:
        """Keep these adapters on the device once they are there, in place of those pinned before.

        At least one slot stays free for the others.
        """
        wanted = frozenset(list(dict.fromkeys(keys))[: self.total - 1])
        for key in self._pinned - wanted:
            self._remove_waiter(key, None)
        self._pinned = wanted
        self.request_pinned()

    def request_pinned(self) -> None:
        """Request pinned adapters that are not on the device; to be called whenever an adapter was read or evicted."""
        for key in self._pinned - self._by_key.keys():
            self.request(key, None, overdue=False)

    def preload(self, keys: Iterable[AdapterKey]) -> None:
        """Read adapters that nothing waits for yet into host memory, unless there is too much to read."""
        for key in keys:
            if key not in self._by_key and self.host.get(key) is None:
                self._begin_read(key)

    def retire(self, keys: Iterable[AdapterKey]) -> None:
        """Mark adapters as deleted, see `release_retired`, and unpin them."""
        self._retiring.update(keys)
        for key in self._pinned & self._retiring:
            self._remove_waiter(key, None)
        self._pinned -= self._retiring

    def release_retired(self, is_wanted: Callable[[AdapterKey], bool]) -> list[AdapterKey]:
        """Release and return the retired adapters that are no longer used, awaited or wanted."""
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

    def read_done(self, key: AdapterKey, host: HostAdapter) -> None:
        """Finish a successful read. Raise AdapterTooLarge; then the state is the same as after a failed read."""
        awaited_by = self._reading.pop(key)
        pages = self._arena.pages_for(host.sizes)
        if pages > self._arena.total:
            room = self._arena.total * PAGE
            raise AdapterTooLarge(f"it takes {pages * PAGE} bytes, and engine.adapter_device_bytes is {room}")
        if host.full_weight_bytes > self._max_full_weight_bytes:
            raise AdapterTooLarge(
                f"its full-weight modules (modules_to_save) take {host.full_weight_bytes} bytes, and "
                f"engine.max_full_weight_bytes is {self._max_full_weight_bytes}; train LoRA on them instead"
            )
        self.counters.reads += 1
        if awaited_by:
            self._awaiting[key] = awaited_by
        self.host.put(key, host, awaited=bool(awaited_by))

    def read_failed(self, key: AdapterKey) -> None:
        """Finish a failed read. It also removes a pin, which would otherwise retry forever."""
        self._reading.pop(key, None)
        self._pinned -= {key}

    def copy_done(self, copy: Copy, patches: Mapping[Patchable, Patch]) -> None:
        """Finish a successful copy."""
        slot = self._slots[copy.slot]
        assert slot.generation == copy.generation, "a slot is not reassigned while it is being filled"
        self._install(slot, patches, copy.host.invocation)

    def copy_failed(self, copy: Copy) -> AdapterKey:
        """Finish a failed copy: free the slot, and return the adapter's key."""
        slot = self._slots[copy.slot]
        assert slot.key is not None
        key = slot.key
        self._empty(slot)
        return key

    def _start_read(self, key: AdapterKey, sequence: Waiter) -> bool:
        if not self._begin_read(key):
            return False
        self._reading[key].add(sequence)
        return True

    def _begin_read(self, key: AdapterKey) -> bool:
        """Begin a read if none is under way; return False if there are too many."""
        if key not in self._reading:
            if len(self._reading) >= _MAX_READS or self.host.crowded:
                return False
            self._reading[key] = set()
            self._request_read(key)
        return True

    def _remove_waiter(self, key: AdapterKey, waiter: Waiter) -> None:
        if key in self._reading:
            self._reading[key].discard(waiter)
        waiting = self._awaiting.get(key)
        if waiting is not None:
            waiting.discard(waiter)
            if not waiting:
                self._settle(key)

    def _settle(self, key: AdapterKey) -> None:
        self._awaiting.pop(key, None)
        self.host.end_wait(key)

    def _place(self, key: AdapterKey, host: HostAdapter, sequence: Waiter, *, overdue: bool) -> bool:
        """Find a slot and pages for a host copy, with as few evictions as possible, and install or copy it."""
        evictable = [s for s in self._slots if self._is_evictable(s, overdue=overdue)]
        evictable.sort(key=lambda s: (s.key is not None, self._frequency[s.key], s.last_used))
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
            return False  # free pages are fragmented among adapters in use
        slot.key, slot.reserved_for, slot.runs, slot.rank = key, sequence, runs, host.rank
        self._by_key[key] = slot
        if self._arena.in_host:
            self._install(slot, host.patches, host.invocation)
        else:
            # Copies run in order, so later ones wait for these events as well.
            after, self._pending_events = tuple(self._pending_events), []
            self._request_copy(Copy(slot.index, slot.generation, host, self._arena, runs, after))
        return True

    def _install(self, slot: Slot, patches: Mapping[Patchable, Patch], invocation: tuple[int, ...] | None) -> None:
        """Make the slot's rows use this adapter from now on."""
        assert slot.key is not None
        for module, patch in patches.items():
            module.put(slot.index, patch)
        slot.modules = tuple(patches)
        slot.invocation = invocation
        slot.resident = True
        slot.last_used = next(self._clock)
        self.counters.loads += 1
        self.loaded(slot.key)

    def _is_evictable(self, slot: Slot, *, overdue: bool) -> bool:
        return slot.unused and (overdue or slot.reserved_for is None) and slot.key not in self._pinned

    def _empty(self, slot: Slot) -> None:
        if slot.key is not None:
            del self._by_key[slot.key]
            self.counters.evictions += slot.resident
        for module in slot.modules:
            module.clear(slot.index)
        self._arena.release(slot.runs)
        if slot.read_until is not None:
            self._pending_events.append(slot.read_until)
            slot.read_until = None
        slot.key, slot.reserved_for, slot.resident, slot.runs, slot.modules = None, None, False, (), ()
        slot.generation += 1
