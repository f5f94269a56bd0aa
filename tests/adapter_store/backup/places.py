"""Installations that tests back up and restore, and what is stored in them."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.backup.archive import open_archive
from loragate.adapter_store.backup.replay import NewEpoch
from loragate.adapter_store.backup.restore import RestoreOptions, restore
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store

SECRET_KEY = b"a secret key for the tests, 32+ bytes"


@dataclass(frozen=True)
class Place:
    """Where a backup is restored."""

    database_url: str
    blob_url: str

    async def restore(self, backup: Path, secret_key: bytes = SECRET_KEY, **options: Any) -> NewEpoch:
        with open_archive(backup) as archive:
            return await restore(
                archive, self.database_url, self.blob_url, SecretKeys(secret_key), RestoreOptions(**options)
            )

    async def open(self) -> Store:
        return await Store.open(self.database_url, self.blob_url, SECRET_KEY)


async def publish_version(store: Store, world: Any, name: str, seed: int) -> int:
    made = world.make_upload(seed=seed)
    async with store.tenant(world.acme.id, write=True) as scope:
        published = await scope.publisher.publish(name, made.config, made.file(), probe=no_probe)
    return int(published.version)


async def new_key(store: Store, tenant_id: str) -> Any:
    async with store.admin(write=True) as admin:
        return await admin.keys.create(tenant_id, name="k")


async def fill(world: Any) -> tuple[str, str]:
    """Store something of each kind; return a key that works and a file's id."""
    await world.publish("support", seed=1, tags=("fr", "de"))
    await world.publish("support", seed=2)
    await world.publish("support", seed=3, tenant=world.other)
    old = await new_key(world.store, world.acme.id)
    async with world.store.admin(write=True) as admin:
        key = await admin.keys.rotate(old.key.id, grace_seconds=60)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        file = await scope.files.create(FileFacts("lines.jsonl", Purpose.FINE_TUNE), io.BytesIO(b"a line\n"), 7)
    return key.secret, file.id
