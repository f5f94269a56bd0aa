"""Facts about this installation, stored in its database."""

import hmac

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.auth.secret_key import derive_key
from loragate.adapter_store.errors import WrongSecretKey
from loragate.adapter_store.tables.base import InstallationRow

ADMIN_KEY_HASH = "admin_key_hash"
_FINGERPRINT = "secret_key_fingerprint"


async def read_fact(session: AsyncSession, key: str) -> bytes | None:
    return await session.scalar(select(InstallationRow.value).where(InstallationRow.key == key))


async def write_fact(session: AsyncSession, key: str, value: bytes) -> None:
    await session.execute(delete(InstallationRow).where(InstallationRow.key == key))
    await session.execute(insert(InstallationRow).values(key=key, value=value))


async def check_secret_key(session: AsyncSession, secret_key: bytes) -> None:
    """Store the secret key's fingerprint the first time; later raise WrongSecretKey for a different key."""
    fingerprint = derive_key(secret_key, "fingerprint")
    known = await read_fact(session, _FINGERPRINT)
    if known is None:
        await write_fact(session, _FINGERPRINT, fingerprint)
    elif not hmac.compare_digest(known, fingerprint):
        raise WrongSecretKey(
            "This database was created with another secret key, so none of its API keys would work. Start with "
            "the LORAGATE_SECRET_KEY (or the data directory's secret_key file) that it was created with."
        )
