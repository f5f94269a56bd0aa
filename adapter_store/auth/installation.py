"""Facts about this installation, stored in its database."""

import hmac
import secrets
from dataclasses import dataclass, field

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.auth.credentials import CHECKSUM_KEY_LENGTH
from loragate.adapter_store.auth.secret_key import derive_key
from loragate.adapter_store.errors import WrongSecretKey
from loragate.adapter_store.tables.base import InstallationRow

ADMIN_KEY_HASH = "admin_key_hash"
_CHECKSUM_KEY = "api_key_checksum_key"
_FINGERPRINT = "secret_key_fingerprint"


async def read_fact(session: AsyncSession, key: str) -> bytes | None:
    return await session.scalar(select(InstallationRow.value).where(InstallationRow.key == key))


async def write_fact(session: AsyncSession, key: str, value: bytes) -> None:
    await session.execute(delete(InstallationRow).where(InstallationRow.key == key))
    await session.execute(insert(InstallationRow).values(key=key, value=value))


@dataclass(frozen=True)
class Installation:
    """The facts of an installation that a process needs before it can check keys."""

    checksum_key: bytes = field(repr=False)
    admin_key_hash: bytes | None  # None: there is no admin key yet


async def open_installation(session: AsyncSession, secret_key: bytes) -> Installation:
    """Read the facts, and create those that are missing at the first start. Raise WrongSecretKey."""
    await _check_secret_key(session, secret_key)
    return Installation(await _ensure_checksum_key(session), await read_fact(session, ADMIN_KEY_HASH))


async def _check_secret_key(session: AsyncSession, secret_key: bytes) -> None:
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


async def _ensure_checksum_key(session: AsyncSession) -> bytes:
    """Return the key of API keys' checksums, which is created the first time.

    It does not depend on the secret key, so that the checksums stay right when that changes. It protects no key: with
    it, one can only invent keys that have to be looked up.
    """
    known = await read_fact(session, _CHECKSUM_KEY)
    if known is None:
        known = secrets.token_bytes(CHECKSUM_KEY_LENGTH)
        await write_fact(session, _CHECKSUM_KEY, known)
    return known
