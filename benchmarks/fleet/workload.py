"""Requests of many tenants: Zipf-distributed over their adapters, evenly in time or with bursts of single tenants."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from loragate.engine.sequence.request import AdapterKey

BURST_SECONDS = 20.0


@dataclass(frozen=True)
class Arrival:
    """A request. `rank` is its adapter's, 0 for the most frequent one."""

    number: int
    at: float
    rank: int
    key: AdapterKey
    prompt: int
    new_tokens: int
    weight: float = 1.0  # its tenant's


@dataclass(frozen=True)
class Workload:
    """What is asked for. `bursts` is the part of the requests that come from one tenant, for a while each."""

    adapters: int
    skew: float  # the exponent of Zipf's law
    rate: float  # requests a second
    bursts: float = 0.0
    tenants: int = 50
    prompt: int = 64
    new_tokens: tuple[int, int] = (8, 24)
    seed: int = 0

    def probabilities(self) -> npt.NDArray[np.float64]:
        """Return each adapter's part of the requests, the most frequent first."""
        weights = 1.0 / np.arange(1, self.adapters + 1) ** self.skew
        return weights / weights.sum()

    def key(self, rank: int) -> AdapterKey:
        """Return the adapter of a rank; its tenant and its digest are random, but always the same."""
        random = Random(f"{self.seed} {rank}")
        return AdapterKey(f"tenant-{random.randrange(self.tenants)}", f"{random.getrandbits(64):016x}")

    def arrivals(self, requests: int) -> Iterator[Arrival]:
        """Yield so many requests in the order of time."""
        random = Random(f"arrivals {self.seed}")
        usual = np.random.default_rng(self.seed).choice(self.adapters, size=requests, p=self.probabilities())
        keys = [self.key(rank) for rank in range(self.adapters)]
        by_tenant = defaultdict(list)
        for rank, key in enumerate(keys):
            by_tenant[key.tenant_id].append(rank)
        tenants = sorted(by_tenant)
        at = 0.0
        for number, rank in enumerate(map(int, usual)):
            at += random.expovariate(self.rate)
            if random.random() < self.bursts:
                rank = random.choice(by_tenant[tenants[int(at / BURST_SECONDS) % len(tenants)]])
            yield Arrival(number, at, rank, keys[rank], self.prompt, random.randint(*self.new_tokens))
