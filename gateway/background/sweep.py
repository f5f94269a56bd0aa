"""The sweep: reclaims the space of data that is no longer needed."""

import logging

from loragate.adapter_store.store import Store
from loragate.gateway.resilience.periodic import periodic

log = logging.getLogger(__name__)

_EVERY_SECONDS = 3600.0
_LISTING_EVERY = 24  # sweeps; a listing of a large bucket takes long and is billed


async def run_sweep_loop(store: Store, every: float = _EVERY_SECONDS) -> None:
    """Sweep periodically until cancelled. If several gateways do so, each finds little to do."""
    done = 0

    async def sweep() -> None:
        nonlocal done
        report = await store.sweep(listing=done % _LISTING_EVERY == 0)
        done += 1
        if report.held:
            log.warning(
                "nothing is swept: a backup is running, or a restoration waits for `loragate restore --confirm`"
            )
        if report.adapters or report.pieces:
            log.info("swept %d adapters and %d pieces of files", report.adapters, report.pieces)

    await periodic("the sweep failed", sweep, every, log=log)
