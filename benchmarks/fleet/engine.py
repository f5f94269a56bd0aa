"""An engine on a virtual clock: the real scheduler and the real adapter pool, with costs instead of a model."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from benchmarks.fleet.clock import Clock
from benchmarks.fleet.workload import Arrival
from loragate.engine.adapters.arena import AdapterArena
from loragate.engine.adapters.host_tier import HostTier
from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.adapters.slot import Copy
from loragate.engine.adapters.use_frequency import UseFrequency
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.layers.patch import Patch, pack
from loragate.engine.scheduling.scheduler import Limits, Scheduler
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams, Share
from loragate.engine.sequence.sequence import Sequence

BLOCK, BLOCKS = 16, 1 << 14


@dataclass(frozen=True)
class Costs:
    """Seconds of work. The defaults are those of a CPU engine's benchmark, see `docs/scale.md`."""

    step: float = 0.012  # of any step
    row: float = 0.0019  # more for each row that decodes
    prompt_token: float = 0.0005  # more for each token of a prompt
    read: float = 0.03  # an adapter from the disk, on a thread of its own
    copy: float = 0.005  # an adapter from host memory to the device, beside the steps
    fetch: float = 0.2  # an adapter from the store to the disk


class _Module:
    """A module of a base model that has no weights."""

    def put(self, slot: int, patch: Patch) -> None:
        """Take an adapter's weights."""

    def clear(self, slot: int) -> None:
        """Drop them."""


@dataclass(frozen=True)
class _Weights:
    """The weights of any adapter."""

    tensors: tuple[torch.Tensor, ...] = (torch.zeros(16),)

    def on(self, tensors: list[torch.Tensor]) -> "_Weights":
        """Return them, as they are all the same."""
        return self

    @property
    def nbytes(self) -> int:
        """The size of an adapter in memory."""
        return pack({_Module(): self}).nbytes


_WEIGHTS = _Weights()


@dataclass
class Served:
    """A request that was completed. Times are by the virtual clock, in seconds."""

    arrival: Arrival
    engine: str
    first_token: float
    end: float


@dataclass
class SimulatedEngine:
    """One engine: it steps while it has work, and calls `served` for each request that ends."""

    name: str
    clock: Clock
    served: Callable[[Served], None]
    slots: int = 16
    batch: int = 16
    host_adapters: int = 64
    frequency: UseFrequency | None = None
    costs: Costs = field(default_factory=Costs)

    def __post_init__(self) -> None:
        arena = AdapterArena(1 << 20, torch.device("cpu"))
        host = HostTier(self.host_adapters * _WEIGHTS.nbytes)
        self.adapters = AdapterPool(self.slots, arena, host, self._read, self._copy, frequency=self.frequency)
        limits = Limits(512, self.batch, 1 << 20)
        self.scheduler = Scheduler(limits, BlockPool(BLOCKS, BLOCK), self.adapters)
        self.disk: set[AdapterKey] = set()
        self._fetching: set[AdapterKey] = set()
        self.open: dict[Sequence, Arrival] = {}
        self.first: dict[Sequence, float] = {}
        self.alive = True
        self._stepping = False

    @property
    def loads(self) -> int:
        """Adapters that were loaded to the device so far."""
        return self.adapters.counters.loads

    @property
    def load(self) -> float:
        """The open requests, as a part of the batch."""
        return len(self.open) / self.batch

    def submit(self, arrival: Arrival, elsewhere: float = 0.0) -> None:
        """Take a request; `elsewhere` is what its tenant received from other engines."""
        sampling = SamplingParams(arrival.new_tokens, seed=0)
        share = Share(arrival.key.tenant_id, arrival.weight, elsewhere=elsewhere)
        request = Request(1, arrival.number, (1,) * arrival.prompt, arrival.key, sampling, share=share)
        sequence = Sequence(request, 0)
        self.open[sequence] = arrival
        self.scheduler.add(sequence)
        self._wake()

    def prefetch(self, key: AdapterKey) -> None:
        """Bring an adapter's bytes to the disk."""
        if key not in self.disk and key not in self._fetching:
            self._fetching.add(key)
            self.clock.after(self.costs.fetch, lambda: self._fetched(key))

    def _fetched(self, key: AdapterKey) -> None:
        self._fetching.discard(key)
        self.disk.add(key)

    def stop(self) -> list[Arrival]:
        """Die; return the requests that were open."""
        self.alive = False
        return list(self.open.values())

    def _wake(self) -> None:
        if not self._stepping:
            self._stepping = True
            self.clock.after(0.0, self._begin_step)

    def _begin_step(self) -> None:
        rows = self.scheduler.schedule() if self.alive else {}
        if not rows:
            self._stepping = False
            return
        decoding = sum(1 for sequence in rows if sequence.generated)
        prompt = sum(tokens for sequence, tokens in rows.items() if not sequence.generated)
        costs = self.costs
        seconds = costs.step + costs.row * decoding + costs.prompt_token * prompt
        self.clock.after(seconds, lambda: self._end_step(rows, seconds))

    def _end_step(self, rows: dict[Sequence, int], seconds: float) -> None:
        if not self.alive:
            return
        for sequence, tokens in rows.items():
            sequence.computed += tokens
            if sequence.computed == len(sequence.tokens):
                sequence.tokens.append(1)
                self.first.setdefault(sequence, self.clock.now)
                if sequence.generated >= sequence.request.sampling.max_tokens:
                    self._end(sequence)
        self.scheduler.record_step(self.scheduler.work, seconds)
        self._begin_step()

    def _end(self, sequence: Sequence) -> None:
        self.scheduler.remove(sequence)
        self.served(Served(self.open.pop(sequence), self.name, self.first.pop(sequence), self.clock.now))

    def _read(self, key: AdapterKey) -> None:
        seconds = self.costs.read + (0.0 if key in self.disk else self.costs.fetch)
        self.clock.after(seconds, lambda: self._read_done(key))

    def _read_done(self, key: AdapterKey) -> None:
        self.disk.add(key)
        self.scheduler.set_token_cost(key, 1.0)
        self.adapters.read_done(key, pack({_Module(): _WEIGHTS}))
        self._wake()

    def _copy(self, copy: Copy) -> None:
        self.clock.after(self.costs.copy, lambda: self._copy_done(copy))

    def _copy_done(self, copy: Copy) -> None:
        self.adapters.copy_done(copy, {})
        self._wake()
