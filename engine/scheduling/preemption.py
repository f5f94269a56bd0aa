"""Choice of the sequences to preempt when a tenant that received less service waits for what another one holds.

Preemption is costly because the preempted sequence's tokens are computed again. The donor must therefore be ahead by
more than this cost plus a quantum of service. Each swap then pays for itself, and two tenants cannot keep preempting
each other.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from loragate.engine.adapters.token_cost import PROMPT_UNITS
from loragate.engine.scheduling.fair_queue import queue_order
from loragate.engine.scheduling.virtual_counters import TenantCounter
from loragate.engine.sequence.request import AdapterKey
from loragate.engine.sequence.sequence import Sequence

RECOMPUTE_UNITS = 0.25
"""Units of service for recomputing a token: it runs in large chunks, and nothing is sampled."""

QUANTUM = 128.0
"""Units of service by which a donor must be ahead in addition to the cost of recomputation: one step of 64 decoding
sequences, or 64 tokens of a single one."""


@dataclass(eq=False, slots=True)
class ScheduledSequence:
    """A sequence with the scheduler's records about it."""

    sequence: Sequence
    tenant: TenantCounter
    expected: float  # units of service that it is expected to take
    token_cost: float = 1.0  # of its tokens relative to the base model's
    charged: int = 0  # prompt tokens that its tenant was charged for
    seated: bool = False
    admitted_by_preemption: bool = False  # others were preempted for its seat
    last_step: int = 0  # the shared step in which it decoded last, see `fair_pace`

    @property
    def pending(self) -> float:
        """Units that its prompt has yet to be charged."""
        return PROMPT_UNITS * self.token_cost * (self.sequence.prompt_length - self.charged)

    @property
    def recompute_units(self) -> float:
        """Units of work that preempting it would lose."""
        return RECOMPUTE_UNITS * self.token_cost * self.sequence.computed

    @property
    def order(self) -> tuple[bool, float, tuple[int, int]]:
        return self.tenant.batch, self.tenant.counter, queue_order(self.sequence)


def victims_for_room(
    in_order: list[ScheduledSequence], beneficiary: TenantCounter, seats: int, blocks: int
) -> list[ScheduledSequence] | None:
    """Return the fewest seated sequences, last in order first, to preempt for a sequence of `beneficiary`.

    Returns None if the donors' lead does not justify preemption.

    Args:
        in_order: the seated sequences.
        seats, blocks: how many are missing.
    """
    held = Counter(entry.tenant for entry in in_order)
    victims: list[ScheduledSequence] = []
    for entry in reversed(in_order):
        if seats <= 0 and blocks <= 0:
            break
        donor = entry.tenant
        if not _far_ahead(donor, beneficiary, entry.recompute_units) or not _balanced(donor, beneficiary, held):
            return None
        victims.append(entry)
        held[donor] -= 1
        seats -= 1
        blocks -= len(entry.sequence.blocks) + 1
    return victims if seats <= 0 and blocks <= 0 else None


def victims_for_slot(seated: Collection[ScheduledSequence], beneficiary: TenantCounter) -> list[ScheduledSequence]:
    """Return all sequences of the adapter whose slot is cheapest to clear for `beneficiary`, or an empty list."""
    if not any(_far_ahead(tenant, beneficiary, 0.0) for tenant in {entry.tenant for entry in seated}):
        return []
    by_adapter: dict[AdapterKey, list[ScheduledSequence]] = defaultdict(list)
    for entry in seated:
        if entry.sequence.request.adapter is not None:
            by_adapter[entry.sequence.request.adapter].append(entry)
    held = Counter(tenant for group in by_adapter.values() for tenant in {entry.tenant for entry in group})

    def may_preempt(group: list[ScheduledSequence]) -> bool:
        units = _total_units(group)
        donors = {entry.tenant for entry in group}
        return all(_far_ahead(donor, beneficiary, units) and _balanced(donor, beneficiary, held) for donor in donors)

    groups = [group for group in by_adapter.values() if may_preempt(group)]

    def cost(group: list[ScheduledSequence]) -> tuple[bool, float, float]:
        return not all(entry.tenant.batch for entry in group), -group[0].tenant.counter, _total_units(group)

    return min(groups, key=cost, default=[])


def _total_units(group: list[ScheduledSequence]) -> float:
    return sum(entry.recompute_units for entry in group)


def _far_ahead(donor: TenantCounter, beneficiary: TenantCounter, recompute_units: float) -> bool:
    """Return whether the donor's lead justifies preemption. A batch gives way to all that is not one."""
    if donor.batch is not beneficiary.batch:
        return donor.batch
    return donor is not beneficiary and donor.counter - beneficiary.counter > (QUANTUM + recompute_units) / donor.weight


def _balanced(donor: TenantCounter, beneficiary: TenantCounter, held: Mapping[TenantCounter, int]) -> bool:
    """Return whether a seat or slot may move, given how many each tenant holds.

    It may always move to a tenant that holds none, else only if the donor keeps as many by weight.
    """
    if held[beneficiary] == 0 or donor.batch is not beneficiary.batch:
        return True
    return (held[donor] - 1) / donor.weight >= (held[beneficiary] + 1) / beneficiary.weight
