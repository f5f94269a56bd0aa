"""A slot: a place on the device for one adapter, and the copy that fills it."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from loragate.engine.adapters.arena import AdapterArena, Run
from loragate.engine.layers.patch import HostAdapter, Patch, Patchable, views
from loragate.engine.runtime.copy_stream import Event
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence


class StaleSlot(Exception):
    """A sequence's slot was reassigned while it held it, so it must not decode."""


@dataclass(eq=False, slots=True)
class Slot:
    """A place in the tables of the base model's modules, for one adapter."""

    index: int
    key: AdapterKey | None = None
    generation: int = 0  # number of adapters that were here
    references: int = 0  # sequences in flight
    resident: bool = False  # false while its pages are being filled
    reserved_for: Sequence | None = None  # the sequence whose request loaded it, until its first use
    last_used: int = 0
    read_until: Event | None = None  # device event after the last step of a sequence in flight
    runs: tuple[Run, ...] = ()
    modules: tuple[Patchable, ...] = ()
    invocation: tuple[int, ...] | None = None  # of the adapter, see HostAdapter
    rank: int = 0  # of the adapter, see HostAdapter

    @property
    def unused(self) -> bool:
        """Whether no sequence uses it and no adapter is being copied to it."""
        return self.references == 0 and (self.resident or self.key is None)


@dataclass(frozen=True, slots=True)
class Resident:
    """An adapter on the device."""

    key: AdapterKey
    slot: int
    sequences: int  # number in flight on it
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

    def pieces(self, max_bytes: int) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Yield at most `max_bytes` bytes of the host's memory at a time, with their targets on the device in order."""
        start = stop = 0
        targets: list[Tensor] = []
        for run, size in zip(self.runs, self.host.sizes, strict=True):
            for target in self.arena.memory(run)[:size].split(max_bytes):
                if stop + target.nbytes - start > max_bytes:
                    yield self.host.memory[start:stop], targets
                    start, targets = stop, []
                targets.append(target)
                stop += target.nbytes
        if targets:
            yield self.host.memory[start:stop], targets

    def patches(self) -> dict[Patchable, Patch]:
        """Return the patches with their tensors on the device."""
        pairs = zip(self.host.patches.items(), self.runs, strict=True)
        return {m: patch.on(views(self.arena.memory(run), patch.tensors)) for (m, patch), run in pairs}
