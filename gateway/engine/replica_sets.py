"""Agreement with other gateways on the sizes of replica sets."""

import logging
from time import monotonic

from loragate.adapter_store.ids import new_id
from loragate.adapter_store.store import Store
from loragate.engine.fleet.fleet import Fleet
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0


async def run_replica_sets_loop(store: Store, fleet: Fleet, every: float = EVERY_SECONDS) -> None:
    """Exchange sizes until cancelled. While the database is unavailable, those that were read last remain."""
    process = new_id("gw")

    async def exchange() -> None:
        if len(fleet.members) < 2:
            return
        needed = fleet.placement.large_sets(len(fleet.ready_members), monotonic())
        fleet.placement.use_sizes_of_others(await store.replica_sets.exchange(process, needed))

    await periodic("the sizes of replica sets were not exchanged", exchange, every, log=log)
