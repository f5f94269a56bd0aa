"""The adapters that runs become: for samplers without a name, and as versions of a tenant's adapter."""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from loragate.adapter_store.adapters.adapter import DEFAULT_ALIAS, AliasTarget
from loragate.adapter_store.adapters.lineage import Lineage
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.publishing.staging import StagedAdapter
from loragate.adapter_store.store import Store
from loragate.adapter_store.training.objects import TrainingRun
from loragate.v1 import engine_pb2

ADAPTER_KEY = "loragate_adapter"
"""The key in a run's metadata that names the adapter of its versions."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version that a run became."""

    adapter: str
    version: int
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AdapterStorage:
    """Stores the adapters of runs on one base model."""

    store: Store
    manifest: engine_pb2.Manifest
    probe: Probe
    preload: Callable[[str, str, bytes, bytes], None]
    """Begins to bring a tenant's stored adapter, by its digest and with its files, to an engine."""

    async def keep(self, tenant_id: str, config_json: bytes, tensors: bytes) -> StagedAdapter:
        """Store an adapter for a sampler or a checkpoint, which records it. Raise StoreError."""
        return await self._store(tenant_id, self._named(config_json), tensors)

    async def keep_for_sampling(self, tenant_id: str, config_json: bytes, tensors: bytes) -> StagedAdapter:
        """Store an adapter that will be sampled from at once. Raise StoreError."""
        named = self._named(config_json)
        staged = await self._store(tenant_id, named, tensors)
        self.preload(tenant_id, staged.digest, named, tensors)
        return staged

    async def publish(
        self, tenant_id: str, run: TrainingRun, checkpoint: str, config_json: bytes, tensors: bytes
    ) -> PublishedVersion:
        """Publish an adapter as the next version of the run's, with the checkpoint's name as its alias. Raise
        StoreError."""
        name, by = adapter_name(run), Actor(f"training_run:{run.id}", "")
        alias = f"step-{checkpoint}" if checkpoint.isdigit() else checkpoint  # a number would be a version
        lineage = Lineage(run.id, notes=f"After {run.steps} optimizer steps on {run.trained_tokens} tokens.")
        async with self.store.tenant(tenant_id, write=True, by=by) as scope:
            made = await scope.publisher.publish(
                name,
                self._named(config_json),
                io.BytesIO(tensors),
                probe=self.probe,
                alias=alias,
                lineage=lineage,
                trained_here=True,
            )
            if DEFAULT_ALIAS not in await scope.adapters.aliases(name):
                await scope.adapters.set_alias(name, DEFAULT_ALIAS, [AliasTarget(made.version)])
        return PublishedVersion(name, made.version, made.digest, made.size_bytes)

    async def _store(self, tenant_id: str, config_json: bytes, tensors: bytes) -> StagedAdapter:
        async with self.store.tenant(tenant_id) as scope:
            return await scope.training_states.store_adapter(config_json, tensors, self.manifest)

    def _named(self, config_json: bytes) -> bytes:
        config = orjson.loads(config_json)
        config["base_model_name_or_path"] = self.manifest.model_id  # rather than its path on this machine
        return orjson.dumps(config)


def adapter_name(run: TrainingRun) -> str:
    """Return the name of the adapter that a run's named samplers are versions of: the client's, or one of the run."""
    given: Mapping[str, object] = run.user_metadata
    name = given.get(ADAPTER_KEY)
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    session, _, number = run.id.partition(":train:")
    return f"run-{session.removeprefix('ts_')[:12]}-{number}"
