"""A session of the training API with a run, a checkpoint, a sampler and a sample, for tests of what others see."""

from loragate.adapter_store.store import Store
from loragate.adapter_store.training.lease import NewCheckpoint
from loragate.adapter_store.training.objects import CheckpointKind, CheckpointPath, CommandKind, Sampler, sampler_id_of
from loragate.adapter_store.training.runs import NewRun

SETTINGS = {"rank": 4, "seed": 1, "train_mlp": True, "train_attn": True, "train_unembed": True}
DIGEST = "sha256:" + "cd" * 32


async def new_session(store: Store, tenant_id: str, key_id: str = "key1") -> str:
    async with store.tenant(tenant_id, write=True) as scope:
        session = await scope.training_sessions.create(
            key_id, sdk_version="0.38.0", tags=["t"], user_metadata={}, display_name=None
        )
    return session.id


async def new_run(store: Store, tenant_id: str, session_id: str, number: int = 0, request: bytes = b"{}") -> str:
    wanted = NewRun(session_id, number, "key1", 4, SETTINGS, {})
    async with store.tenant(tenant_id, write=True) as scope:
        request_id = await scope.training_runs.create(wanted, CommandKind.CREATE, request, request)
    return request_id.rpartition(":")[0]


async def training_objects(store: Store, tenant_id: str, key_id: str) -> dict[str, str]:
    """Create one of each; return their names in the routes."""
    session_id = await new_session(store, tenant_id, key_id)
    run_id = await new_run(store, tenant_id, session_id)
    path = CheckpointPath(run_id, CheckpointKind.STATE, "poet")
    sampler = Sampler(sampler_id_of(session_id, 0), session_id, None, run_id, None, DIGEST, 10)
    async with store.admin(write=True) as admin:
        await admin.training_queue.claim("trainer", 1)
    async with store.tenant(tenant_id, write=True) as scope:
        new = NewCheckpoint(path, DIGEST, 10, {}, None)
        await scope.training_lease.add_checkpoint("trainer", new, overwrite=False)
        await scope.training_samplers.create(sampler)
        await scope.training_samplers.submit(sampler.id, 1, b"{}", "gateway-1")
    return {
        "session_id": session_id,
        "run_id": run_id,
        "kind": "weights",
        "checkpoint": "poet",
        "sampler_id": sampler.id,
        "path": "anything",
    }
