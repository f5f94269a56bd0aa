"""An adapter pool without a model; the values of each adapter identify it."""

from dataclasses import dataclass, field

import torch

from loragate.engine.adapters.arena import PAGE, AdapterArena
from loragate.engine.adapters.copier import perform
from loragate.engine.adapters.host_tier import HostTier
from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.adapters.slot import Copy
from loragate.engine.adapters.staging_buffers import Staging
from loragate.engine.layers.patch import HostAdapter, pack
from loragate.engine.runtime.copy_stream import Mark
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams
from loragate.engine.sequence.sequence import Sequence, SlotLease


@dataclass(frozen=True)
class Numbered:
    """A patch whose values identify its adapter."""

    values: torch.Tensor

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (self.values,)

    def on(self, tensors: list[torch.Tensor]) -> "Numbered":
        return Numbered(tensors[0])


class Module:
    """A base module that records the patch in each slot."""

    def __init__(self) -> None:
        self.slots: dict[int, Numbered] = {}

    def put(self, slot: int, patch: Numbered) -> None:
        assert slot not in self.slots, "the slot was not cleared"
        self.slots[slot] = patch

    def clear(self, slot: int) -> None:
        self.slots.pop(slot, None)


@dataclass
class PoolHarness:
    """A pool whose reads and copies end on the test's command."""

    slots: int = 2
    pages: int = 64
    host_bytes: int = 1 << 20
    modules: tuple[Module, ...] = field(default_factory=lambda: (Module(), Module()))
    staging: Staging = field(default_factory=lambda: Staging.on(torch.device("cpu")))
    mark: Mark = lambda: None
    reads: list[AdapterKey] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arena = AdapterArena(self.pages * PAGE, torch.device("cpu"))
        host = HostTier(self.host_bytes)
        self.pool = AdapterPool(self.slots, self.arena, host, self.reads.append, self.copies.append, mark=self.mark)

    def adapter(self, name: str) -> HostAdapter:
        """Return weights with unique values, so that mixed-up memory is detected. Sizes differ by name."""
        return pack({module: Numbered(numbers(name, i)) for i, module in enumerate(self.modules)})

    def want(self, name: str, sequence: Sequence | None = None, *, overdue: bool = False) -> bool:
        return self.pool.request(key(name), sequence or waiting(name), overdue=overdue)

    def finish_reads(self) -> None:
        while self.reads:
            wanted = self.reads.pop(0)
            self.pool.read_done(wanted, self.adapter(wanted.digest))

    def finish_copies(self) -> None:
        while self.copies:
            copy = self.copies.pop(0)
            self.pool.copy_done(copy, perform(copy, self.staging))

    def bring(self, name: str) -> SlotLease:
        """Request, read, copy and acquire an adapter."""
        self.want(name)
        self.finish_reads()
        self.want(name)
        self.finish_copies()
        lease = self.pool.acquire(key(name))
        assert lease is not None
        return lease

    def check_contents(self) -> None:
        for resident in self.pool.residents():
            self.check_slot(resident.key.digest, resident.slot)

    def check_slot(self, name: str, slot: int) -> None:
        for i, module in enumerate(self.modules):
            assert torch.equal(module.slots[slot].values, numbers(name, i))

    @property
    def residents(self) -> set[str]:
        return {resident.key.digest for resident in self.pool.residents()}


def numbers(name: str, module: int) -> torch.Tensor:
    """Return values that no other name or module has."""
    start = 1000 * sum(name.encode()) + 500 * module
    return start + torch.arange(PAGE // 4 * (1 + ord(name[0]) % 3)) / 8


def key(name: str) -> AdapterKey:
    return AdapterKey("tenant", name)


def waiting(name: str) -> Sequence:
    return Sequence(Request(1, 1, (1,), key(name), SamplingParams(max_tokens=1, seed=0)), 0)
