"""`loragate restore`: from a backup and settings to an installation in a new epoch."""

from dataclasses import dataclass
from pathlib import Path

from loragate.adapter_store.auth.secret_key_file import (
    FILE_NAME,
    parse_secret_keys,
    split_secret_keys,
    write_secret_keys,
)
from loragate.adapter_store.backup.archive import ArchiveReader, open_archive
from loragate.adapter_store.backup.backup import Progress
from loragate.adapter_store.backup.manifest import SECRET, Manifest
from loragate.adapter_store.backup.replay import NewEpoch
from loragate.adapter_store.backup.restore import RestoreOptions, confirm, restore
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import require_compatible
from loragate.adapter_store.errors import StoreError
from loragate.cli.data_dir.lock import lock_data_dir
from loragate.cli.data_dir.preparation import make_data_dir
from loragate.cli.errors import CliError
from loragate.cli.recovery.backup import require_database
from loragate.cli.recovery.usage_files import restore_usage
from loragate.cli.settings.model import Settings


async def restore_backup(
    settings: Settings, source: Path, options: RestoreOptions, progress: Progress
) -> tuple[Manifest, NewEpoch]:
    """Restore a backup while no server of this machine runs. Raises CliError."""
    make_data_dir(settings)
    try:
        with lock_data_dir(settings.data_dir), open_archive(source) as archive:
            secret = _choose_secret(settings, archive, replace=options.replace)

            def place_others() -> None:
                if secret.is_new:
                    write_secret_keys(settings.data_dir, secret.texts)
                restore_usage(archive, settings.data_dir / "usage")

            epoch = await restore(
                archive,
                settings.effective_database_url,
                settings.effective_blob_url,
                parse_secret_keys(secret.texts),
                options,
                place_others=place_others,
                progress=progress,
            )
            return archive.manifest, epoch
    except StoreError as error:
        raise CliError(error.message) from None
    except OSError as error:
        raise CliError(f"the backup cannot be restored: {error}") from None


async def confirm_restoration(settings: Settings) -> bool:
    """Release the sweep; return False if no restoration waited for it. Raises CliError."""
    require_database(settings)
    database = Database(settings.effective_database_url)
    try:
        await require_compatible(database)
        return await confirm(database)
    except StoreError as error:
        raise CliError(error.message) from None
    finally:
        await database.close()


@dataclass(frozen=True)
class _Secret:
    texts: tuple[str, ...]  # the primary one first
    is_new: bool  # to be written to the data directory


def _choose_secret(settings: Settings, archive: ArchiveReader, *, replace: bool) -> _Secret:
    """Return the secret keys that the backup was made with, as far as they are known. Raise CliError."""
    archived = _secrets_in(archive.read(SECRET).decode()) if archive.manifest.of(SECRET) else ()
    path = settings.data_dir / FILE_NAME
    found = _secrets_in(path.read_text(encoding="utf-8")) if path.exists() else ()
    if settings.secret_key is not None:
        given = settings.secret_key.get_secret_value()
        if archived and given != archived[0]:
            raise CliError("LORAGATE_SECRET_KEY is not the backup's secret key: correct it, or leave it out")
        previous = tuple(each.get_secret_value() for each in settings.previous_secret_keys)
        return _Secret((given, *previous), is_new=False)
    if not archived:
        if not found:
            raise CliError("the backup has no secret key: set LORAGATE_SECRET_KEY to the one of its installation")
        return _Secret(found, is_new=False)
    if found not in ((), archived) and not replace:
        raise CliError(f"{path} has another secret key than the backup: choose another --data-dir, or give --replace")
    return _Secret(archived, is_new=found != archived)


def _secrets_in(text: str) -> tuple[str, ...]:
    return tuple(split_secret_keys(text))
