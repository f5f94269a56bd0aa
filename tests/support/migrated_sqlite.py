"""A migrated SQLite database to copy: migrating one for each test takes a third of a second."""

import asyncio
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from loragate.adapter_store.database.schema import upgrade

_folders = tempfile.TemporaryDirectory(prefix="lg-prepared-")  # removed with the process that made it


def prepared_folder() -> Path:
    """Return a folder of this process, which may be a fork of the one that imported this module."""
    folder = Path(_folders.name, str(os.getpid()))
    folder.mkdir(exist_ok=True)
    return folder


async def migrated_sqlite(folder: Path) -> str:
    """Return the URL of a migrated database in `folder`, `store.db`."""
    shutil.copy(await asyncio.to_thread(_migrated), folder / "store.db")
    return f"sqlite:///{folder / 'store.db'}"


@cache
def _migrated() -> Path:
    path = prepared_folder() / "migrated.db"
    asyncio.run(upgrade(f"sqlite:///{path}"))
    return path
