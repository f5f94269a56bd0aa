"""The reconciler: makes the engines hold what the database says, after changes, when an engine connects, and
periodically.

Every gateway process does so on its own links. All of them read the same database, and repeated commands have no
effect.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable

from loragate.adapter_store.adapters.desired_state import Content, Placement
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.fleet.member import Member
from loragate.gateway.resilience.timeouts import wait_for_event
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_PERIOD_SECONDS = 60.0
_GAP_SECONDS = 0.5  # changes within this time are handled together


class Reconciler:
    """Reconciles the engines with the store. One per process. It subscribes to the store's change notices."""

    def __init__(self, store: Store, fleet: Fleet, period: float = _PERIOD_SECONDS) -> None:
        self._store = store
        self._fleet = fleet
        self._period = period
        self._due = asyncio.Event()
        self._changed = set[str | None]()
        store.notices.subscribe(self.due)

    def due(self, tenant_id: str | None = None) -> None:
        """Note that data of the tenant (None: of any tenant) may have changed, here or in an engine."""
        self._changed.add(tenant_id)
        self._due.set()

    async def run_reconcile_loop(self) -> None:
        """Reconcile after changes and periodically until cancelled."""
        changed: set[str | None] = {None}
        while True:
            self._due.clear()
            try:
                await self.reconcile(None if None in changed else changed)
            except (StoreError, EngineUnavailable) as error:
                log.warning("the engines' adapters were not reconciled with the store: %s", error)
                self._changed |= changed  # retried with the next change, or after the period
            await asyncio.sleep(_GAP_SECONDS)
            notified = await wait_for_event(self._due, self._period)
            changed, self._changed = self._changed if notified else {None}, set()

    async def reconcile(self, tenants: Collection[str | None] | None = None) -> None:
        """Reconcile all adapters, or those of these tenants. Raise StoreError, and EngineUnavailable if an engine was
        not reconciled. Engines are asked first what they hold, so that adapters published after that are not mistaken
        for deleted ones."""
        members = self._fleet.ready_members
        found = await asyncio.gather(*(_held(member, tenants) for member in members), return_exceptions=True)
        held = {member: each for member, each in zip(members, found, strict=True) if isinstance(each, set)}
        async with self._store.admin() as admin:
            placed = await admin.desired.placed()
            living = await admin.desired.living(set[Content]().union(*held.values()))
        pinned = _references((each.tenant_id, each.digest) for each in placed if each.placement is Placement.PINNED)
        wanted = _references((each.tenant_id, each.digest) for each in placed)
        for member in self._fleet.members:
            member.keep(pinned, wanted)
        for member, contents in held.items():
            if contents - living:
                member.retire(_references(sorted(contents - living)))
        for each in found:
            if isinstance(each, BaseException):
                raise each


async def _held(member: Member, tenants: Collection[str | None] | None) -> set[Content]:
    """Return the adapters that an engine holds, or those of these tenants. Raise EngineUnavailable."""
    return {content for content in await member.holdings() if tenants is None or content[0] in tenants}


def _references(contents: Iterable[Content]) -> list[pb.AdapterRef]:
    return [pb.AdapterRef(tenant_id=tenant_id, digest=digest) for tenant_id, digest in contents]
