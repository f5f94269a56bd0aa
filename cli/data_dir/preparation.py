"""Preparing a server: the data directory, the keys and the database's schema."""

import logging
import os
import stat
from pathlib import Path

from pydantic import SecretStr

from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.auth.secret_key_file import load_secret_keys
from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.cli.data_dir.first_tenant import create_first_tenant
from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.model import Settings

log = logging.getLogger(__name__)


def check_replicas(settings: Settings) -> None:
    """Raise CliError unless replicas share all that one machine would otherwise keep for itself."""
    if settings.replicas == 1:
        return
    replicas = f"{settings.replicas} replicas (LORAGATE_REPLICAS)"
    if settings.secret_key is None:
        raise CliError(f"{replicas} need the same LORAGATE_SECRET_KEY", BAD_SETTING)
    if settings.effective_database_url.startswith("sqlite"):
        raise CliError(
            f"{replicas} need one database: with SQLite each has tenants and keys of its own, and a key that one "
            "revokes works with the others. Set LORAGATE_DATABASE_URL to a Postgres database",
            BAD_SETTING,
        )
    if settings.redis_url is None:
        raise CliError(f"{replicas} need Redis to share their limits: set LORAGATE_REDIS_URL", BAD_SETTING)
    if settings.effective_blob_url.startswith("file:") and not settings.blob_folder_is_shared:
        raise CliError(
            f"{replicas} need one blob store, and {settings.effective_blob_url} is a local folder: set "
            "LORAGATE_BLOB_URL to a bucket, or, if all replicas mount this same folder, "
            "LORAGATE_BLOB_FOLDER_IS_SHARED=true",
            BAD_SETTING,
        )


def make_data_dir(settings: Settings) -> None:
    """Create the data directory, accessible only to this user, as is all that this process and its children write. An
    existing directory is closed to other users."""
    os.umask(0o077)
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(settings.data_dir)
    except OSError as error:
        raise CliError(
            f"{settings.data_dir} (--data-dir or LORAGATE_DATA_DIR) cannot be created: {error.strerror}", BAD_SETTING
        ) from None


def _close_to_others(folder: Path) -> None:
    """Remove other users' permissions, which a directory may have from a backup or an earlier version."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        try:
            folder.chmod(mode & 0o700)
        except PermissionError:
            log.warning("%s is open to other users (mode %o), and only its owner can change that", folder, mode)
        else:
            log.warning("%s was open to other users (mode %o); now only this user can access it", folder, mode)


def secret_keys(settings: Settings) -> SecretKeys:
    """Return the configured secret keys, else those in the data directory, where the first start creates one."""
    given = settings.secret_key.get_secret_value() if settings.secret_key else None
    previous = [each.get_secret_value() for each in settings.previous_secret_keys]
    try:
        return load_secret_keys(settings.data_dir, given, previous)
    except StoreError as error:
        raise CliError(error.message, BAD_SETTING) from None


def with_secret_keys(settings: Settings) -> Settings:
    """Return the settings with the secret keys of now, so that a server's processes have the same ones for as long as
    it runs, even if they are rotated meanwhile."""
    primary, *previous = (SecretStr(each.decode()) for each in secret_keys(settings).all)
    return settings.model_copy(update={"secret_key": primary, "previous_secret_keys": tuple(previous)})


def engine_secrets(settings: Settings) -> tuple[str, ...]:
    """Return the secret that the engine requires of its clients, and the previous ones that it still accepts: the
    configured ones, else those derived from the secret keys. Raise CliError."""
    previous = tuple(each.get_secret_value() for each in settings.previous_engine_secrets)
    if settings.engine_secret is not None:
        return settings.engine_secret.get_secret_value(), *previous
    return *(each.hex() for each in secret_keys(settings).derive("engine link")), *previous


async def prepare_store(settings: Settings) -> str | None:
    """Upgrade the schema, and create the admin key and the configured first tenant where they are missing. Return a new
    admin key."""
    given = settings.admin_key.get_secret_value() if settings.admin_key else None
    url = settings.effective_database_url
    try:
        await upgrade(url)
        keys = secret_keys(settings)
        store = await Store.open(url, settings.effective_blob_url, keys.primary, previous_secret_keys=keys.previous)
        try:
            new_key = await store.ensure_admin_key(given)
            await create_first_tenant(store, settings)
            return new_key
        finally:
            await store.close()
    except StoreError as error:
        raise CliError(error.message) from None


def print_admin_key(key: str) -> None:
    """Print a new admin key on stdout, on a line of its own, so that a script can read it."""
    print(f"admin key, shown only once: {key}", flush=True)
