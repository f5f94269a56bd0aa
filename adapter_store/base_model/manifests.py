"""The engine's latest manifest, stored so that uploads can be validated while the engine is down."""

from sqlalchemy import delete, insert, select

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.tables.installation import EngineManifestRow
from loragate.adapter_store.timestamps import utc_now
from loragate.v1 import engine_pb2

_ONLY_ROW = 1


class Manifests:
    """The stored manifest of the base model."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def publish(self, manifest: engine_pb2.Manifest) -> None:
        """Replace the manifest; writes nothing if it is unchanged."""
        payload = manifest.SerializeToString(deterministic=True)
        if await self._payload() == payload:
            return
        row = insert(EngineManifestRow).values(
            id=_ONLY_ROW, base_digest=manifest.base_digest, payload=payload, updated_at=utc_now()
        )
        async with self._database.operator(write=True) as session:
            await session.execute(delete(EngineManifestRow))
            await session.execute(row)

    async def current(self) -> engine_pb2.Manifest | None:
        """Return the manifest; None until an engine has published one."""
        payload = await self._payload()
        return None if payload is None else engine_pb2.Manifest.FromString(payload)

    async def required(self) -> engine_pb2.Manifest:
        """Return the manifest; raises Unavailable where `current` returns None."""
        manifest = await self.current()
        if manifest is None:
            raise base_model_unknown()
        return manifest

    async def _payload(self) -> bytes | None:
        async with self._database.operator() as session:
            return await session.scalar(select(EngineManifestRow.payload))


def base_model_unknown() -> Unavailable:
    return Unavailable("The engine has not described its base model yet; try again in a moment.")
