"""Adapter slots on the device: loaded on demand, evicted least recently used first, never while in use.

All methods run on the step thread, between steps. Loading itself happens elsewhere: `request_load` starts it, and
`loaded` or `failed` is called with its result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from loragate.engine.lora_linear import LoraGroup
from loragate.engine.sequence import AdapterKey, Sequence, SlotLease
from loragate.kernels.segmented_lora import LoraWeights

AdapterWeights = Mapping[LoraGroup, LoraWeights]
"""An adapter's weights for each fused module that it targets."""


class StaleSlot(Exception):
    """A sequence's slot was given to another adapter under it: it must not decode."""


@dataclass(eq=False, slots=True)
class Slot:
    """A place for one adapter on the device."""

    index: int
    key: AdapterKey | None = None
    generation: int = 0  # counts the adapters that were here
    references: int = 0  # sequences in flight
    resident: bool = False  # False while loading
    promised_to: Sequence | None = None  # whose request loaded it, until it was first used
    last_used: int = 0

    @property
    def unused(self) -> bool:
        """Nothing in flight, nothing on its way in."""
        return self.references == 0 and (self.resident or self.key is None)


class AdapterPool:
    """`groups` are the fused modules of the base model, whose weight tables the slots index."""

    def __init__(self, slots: int, groups: tuple[LoraGroup, ...], request_load: Callable[[AdapterKey], None]) -> None:
        self._groups = groups
        self._slots = [Slot(i) for i in range(slots)]
        self._by_key: dict[AdapterKey, Slot] = {}
        self._request_load = request_load
        self._clock = count(1)
        self.loads = 0
        self.evictions = 0

    @property
    def used(self) -> int:
        return len(self._by_key)

    @property
    def total(self) -> int:
        return len(self._slots)

    def acquire(self, key: AdapterKey) -> SlotLease | None:
        """Hold the adapter's slot if it is resident; it stays until `release`."""
        slot = self._by_key.get(key)
        if slot is None or not slot.resident:
            return None
        slot.references += 1
        slot.promised_to = None
        slot.last_used = next(self._clock)
        return SlotLease(slot.index, slot.generation)

    def release(self, lease: SlotLease) -> None:
        slot = self._slots[lease.slot]
        assert slot.generation == lease.generation
        assert slot.references > 0
        slot.references -= 1

    def check(self, lease: SlotLease) -> None:
        """Raises StaleSlot if the slot no longer holds the adapter that was leased."""
        slot = self._slots[lease.slot]
        if slot.generation != lease.generation or not slot.resident:
            raise StaleSlot(f"slot {lease.slot} changed from generation {lease.generation} to {slot.generation}")

    def want(self, key: AdapterKey, sequence: Sequence, *, overdue: bool) -> bool:
        """See to it that the adapter gets a slot; False when every slot is in use.

        An overdue sequence may also take a slot that was loaded for another one and not used yet.
        """
        if key in self._by_key:
            return True
        candidates = [s for s in self._slots if s.unused and (overdue or s.promised_to is None)]
        if not candidates:
            return False
        slot = min(candidates, key=lambda s: s.last_used)
        self._empty(slot)
        slot.key, slot.promised_to = key, sequence
        self._by_key[key] = slot
        self._request_load(key)
        return True

    def forget(self, sequence: Sequence) -> None:
        """The sequence is gone: a slot loaded for it alone may be evicted."""
        for slot in self._slots:
            if slot.promised_to is sequence:
                slot.promised_to = None

    def loaded(self, key: AdapterKey, weights: AdapterWeights) -> None:
        slot = self._by_key[key]
        for group, group_weights in weights.items():
            group.weights[slot.index] = group_weights
        slot.resident = True
        slot.last_used = next(self._clock)
        self.loads += 1

    def failed(self, key: AdapterKey) -> None:
        """The load failed: its slot is free again."""
        self._empty(self._by_key[key])

    def _empty(self, slot: Slot) -> None:
        if slot.key is not None:
            del self._by_key[slot.key]
            self.evictions += slot.resident
        for group in self._groups:
            group.weights.pop(slot.index, None)
        slot.key, slot.promised_to, slot.resident = None, None, False
        slot.generation += 1
