"""The server's check of an adapter, run locally against the base model that the server last served."""

import asyncio
from pathlib import Path
from typing import Any

from loragate.adapter_store.base_model.layout import layout_of
from loragate.adapter_store.base_model.manifests import Manifests
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import require_compatible
from loragate.adapter_store.errors import StoreError
from loragate.cli.client.transfer.folders import CONFIG, TENSORS, check_folder
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.read import read_adapter
from loragate.v1 import engine_pb2


def check(settings: Settings, folder: Path) -> dict[str, Any]:
    """Return the adapter's properties. Raise CliError with the message that an upload would be rejected with."""
    check_folder(folder)
    manifest = _manifest(settings)
    tensors = folder / TENSORS
    try:
        with tensors.open("rb") as file:
            reading = read_adapter((folder / CONFIG).read_bytes(), file, tensors.stat().st_size, layout_of(manifest))
    except AdapterRejected as error:
        raise CliError(error.message) from None
    return {
        "digest": reading.digest,
        "rank": reading.plan.max_rank,
        "size_bytes": tensors.stat().st_size,
        "kinds": sorted(reading.plan.kinds),
        "base_model": manifest.model_id,
        "warnings": list(reading.plan.warnings),
    }


def _manifest(settings: Settings) -> engine_pb2.Manifest:
    hint = "start the server once, or give its database with --data-dir or LORAGATE_DATABASE_URL"
    if settings.database_url is None and not (settings.data_dir / "loragate.db").exists():
        raise CliError(f"no server has run in {settings.data_dir}, so its base model is not known: {hint}")
    try:
        return asyncio.run(_stored_manifest(settings.effective_database_url))
    except StoreError as error:
        raise CliError(f"{error.message} ({hint})") from None


async def _stored_manifest(database_url: str) -> engine_pb2.Manifest:
    database = Database(database_url)
    try:
        await require_compatible(database)
        return await Manifests(database).required()
    finally:
        await database.close()
