"""What each tenant was served: the virtual token counter of Sheng et al., "Fairness in Serving Large Language
Models", OSDI 2024, arXiv:2401.00588.

A counter grows with each token that is computed for its tenant, divided by the tenant's weight; whose counter is
least has the next turn. Service is counted in units: a prompt token is one, a generated token two (the paper's
weights), times the request's token cost (see service_cost).
"""

import heapq
from dataclasses import dataclass

from loragate.engine.runtime.lazy_heap import LazyHeap
from loragate.engine.sequence.request import Share


@dataclass(eq=False, slots=True)
class Account:
    """One tenant's. `counter` is in units of service divided by the weight."""

    tenant_id: str
    weight: float = 1.0
    counter: float = 0.0
    pending: float = 0.0  # units: prompts that have a seat and are not computed yet
    sequences: int = 0  # seated and waiting
    seated: int = 0
    backlog: float = 0.0  # units that those who wait will take, by experience

    @property
    def claim(self) -> float:
        """The counter as it will be once the seated prompts are computed: who is given the next seat depends on it,
        or a tenant would take all seats of a step before any of them is charged."""
        return self.counter + self.pending / self.weight

    @property
    def waiting(self) -> int:
        return self.sequences - self.seated

    def charge(self, units: float) -> None:
        self.counter += units / self.weight


class Ledger:
    """All accounts. Idle ones are kept only as long as they are ahead of those who are served."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._active: LazyHeap[Account] = LazyHeap(lambda account: account.counter)
        self._idle: list[tuple[float, str]] = []
        self._last_left = 0.0  # the counter of whoever left last
        self.active_weight = 0.0

    def __len__(self) -> int:
        return len(self._accounts)

    def all(self) -> list[Account]:
        """Copied in one go: other threads may ask."""
        return list(self._accounts.values())

    def find(self, tenant_id: str) -> Account | None:
        return self._accounts.get(tenant_id)

    def enter(self, share: Share) -> Account:
        """A sequence of this tenant arrives. Whoever was idle is lifted to the least counter of those who were not:
        nobody saves up turns by staying away."""
        account = self._accounts.setdefault(share.tenant_id, Account(share.tenant_id))
        if account.sequences == 0:
            account.counter = max(account.counter, self.level)
            self._active.add(account)
        else:
            self.active_weight -= account.weight
        account.weight = share.weight
        self.active_weight += account.weight
        account.sequences += 1
        return account

    def leave(self, account: Account) -> None:
        """A sequence of this tenant ended."""
        account.sequences -= 1
        if account.sequences == 0:
            account.pending = account.backlog = 0.0  # without the rounding of many sums
            self._active.discard(account)
            self._last_left = max(self._last_left, account.counter)
            self.active_weight = self.active_weight - account.weight if len(self._active) else 0.0
            heapq.heappush(self._idle, (account.counter, account.tenant_id))
            self._forget_idle()

    @property
    def level(self) -> float:
        """The least counter of those who are active; while nobody is, that of whoever left last."""
        least = self._active.first()
        return self._last_left if least is None else least.counter

    def _forget_idle(self) -> None:
        """Drop accounts that a return would lift anyway."""
        level = self.level
        while self._idle and self._idle[0][0] <= level:
            counter, tenant_id = heapq.heappop(self._idle)
            account = self._accounts.get(tenant_id)
            if account is not None and account.sequences == 0 and account.counter == counter:
                del self._accounts[tenant_id]
