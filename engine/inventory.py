"""Which adapters the engine holds, each on the highest tier where it is."""

from collections.abc import Iterable

from loragate.engine.adapters.pool import AdapterPool
from loragate.engine.sequence.sequence import AdapterKey
from loragate.v1 import engine_pb2 as pb


def inventory_of(pool: AdapterPool, on_disk: Iterable[AdapterKey]) -> pb.InventoryResponse:
    """May be called beside the step loop."""
    residents = pool.residents()
    tiers = dict.fromkeys(on_disk, pb.TIER_DISK)
    tiers |= dict.fromkeys(pool.host.keys(), pb.TIER_HOST)
    tiers |= dict.fromkeys((resident.key for resident in residents), pb.TIER_DEVICE)
    pinned = {resident.key for resident in residents if resident.pinned}
    return pb.InventoryResponse(
        held=[
            pb.Held(adapter=pb.AdapterRef(tenant_id=key.tenant_id, digest=key.digest), tier=tier, pinned=key in pinned)
            for key, tier in tiers.items()
        ]
    )
