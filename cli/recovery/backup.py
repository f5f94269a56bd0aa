"""`loragate backup`: from settings to a complete backup."""

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from loragate.adapter_store.auth.secret_key_file import FILE_NAME
from loragate.adapter_store.backup.archive import new_archive
from loragate.adapter_store.backup.backup import Progress, back_up
from loragate.adapter_store.backup.manifest import SECRET, Manifest
from loragate.adapter_store.errors import StoreError
from loragate.cli.errors import CliError
from loragate.cli.recovery.usage_files import usage_files
from loragate.cli.settings.model import Settings


async def make_backup(settings: Settings, target: Path, *, with_secret: bool, progress: Progress) -> Manifest:
    """Write a backup of the installation, which may be serving. Raises CliError."""
    os.umask(0o077)
    require_database(settings)
    secret = _secret_text(settings) if with_secret else None

    def others() -> Iterator[tuple[str, bytes]]:
        if secret is not None:
            yield SECRET, f"{secret}\n".encode()
        yield from usage_files(settings.data_dir / "usage")

    try:
        with new_archive(target) as archive:
            return await back_up(
                settings.effective_database_url,
                settings.effective_blob_url,
                archive,
                version=version("loragate"),
                others=others,
                progress=progress,
            )
    except StoreError as error:
        raise CliError(error.message) from None
    except OSError as error:
        raise CliError(f"the backup cannot be written: {error}") from None


def require_database(settings: Settings) -> None:
    """Raise CliError where there is no installation. Opening SQLite would create an empty one."""
    if settings.database_url is None and not (settings.data_dir / "loragate.db").exists():
        raise CliError(f"{settings.data_dir} has no loragate database: name its directory with --data-dir")


def _secret_text(settings: Settings) -> str:
    """Return the secret keys, one a line, the primary one first. Raise CliError."""
    if settings.secret_key is not None:
        previous = (each.get_secret_value() for each in settings.previous_secret_keys)
        return "\n".join([settings.secret_key.get_secret_value(), *previous])
    try:
        return (settings.data_dir / FILE_NAME).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise CliError(
            f"{settings.data_dir} has no secret key: set LORAGATE_SECRET_KEY, or give --without-secret"
        ) from None
