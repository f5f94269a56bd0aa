"""What must be there before the first child starts: keys and the database's schema."""

from loragate.adapter_store.auth.secret_key import load_or_create_secret_key
from loragate.adapter_store.database.schema import upgrade
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.cli.refusal import BAD_SETTING, Refusal
from loragate.cli.settings.model import Settings


def make_data_dir(settings: Settings) -> None:
    """Makes the data directory, for this user only."""
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(
            f"{settings.data_dir} (--data-dir or LORAGATE_DATA_DIR) cannot be made: {error.strerror}", BAD_SETTING
        ) from None


def secret_key(settings: Settings) -> bytes:
    """The configured secret key, else the data directory's, made at the first start."""
    given = settings.secret_key.get_secret_value() if settings.secret_key else None
    try:
        return load_or_create_secret_key(settings.data_dir, given)
    except StoreError as error:
        raise Refusal(error.message, BAD_SETTING) from None


async def prepare_store(settings: Settings) -> str | None:
    """Brings the schema up to date and sees to the admin key; returns the key when it was made just now."""
    given = settings.admin_key.get_secret_value() if settings.admin_key else None
    url = settings.effective_database_url
    try:
        await upgrade(url)
        store = await Store.open(url, settings.effective_blob_url, secret_key(settings))
        try:
            return await store.ensure_admin_key(given)
        finally:
            await store.close()
    except StoreError as error:
        raise Refusal(error.message) from None
