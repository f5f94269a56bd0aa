"""Facts about this installation, stored in its database."""

import hmac
import secrets
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from loragate.adapter_store.audit.actor import SYSTEM
from loragate.adapter_store.audit.log import AuditLog
from loragate.adapter_store.auth.credentials import CHECKSUM_KEY_LENGTH
from loragate.adapter_store.auth.secret_key import SecretKeys, secret_id
from loragate.adapter_store.errors import WrongSecretKey
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.installation import InstallationRow
from loragate.adapter_store.tables.tenants import ApiKeyRow
from loragate.adapter_store.timestamps import utc_now

ADMIN_KEY_HASH = "admin_key_hash"
ADMIN_KEY_SECRET = "admin_key_secret_id"  # noqa: S105 (a name); of the secret that the hash was made with
_CHECKSUM_KEY = "api_key_checksum_key"
_FINGERPRINT = "secret_key_fingerprint"  # of the current secret
_CURRENT = "secret_key_id"
_SINCE = "secret_key_since:"  # and a secret's id


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


async def open_installation(session: AsyncSession, secret_keys: SecretKeys) -> Installation:
    """Read the facts, and create those that are missing at the first start. Raise WrongSecretKey."""
    await _check_secret_keys(session, secret_keys)
    return Installation(await _ensure_checksum_key(session), await read_fact(session, ADMIN_KEY_HASH))


async def current_secret_id(session: AsyncSession) -> str | None:
    """Return the id of the secret that became the primary one last; None before a start has recorded it."""
    found = await read_fact(session, _CURRENT)
    return None if found is None else found.decode()


async def secrets_since(session: AsyncSession) -> dict[str, datetime]:
    """Return when each recorded secret was first the primary one, by its id, newest first."""
    rows = await session.execute(select(InstallationRow).where(InstallationRow.key.startswith(_SINCE, autoescape=True)))
    found = {row.key.removeprefix(_SINCE): datetime.fromisoformat(row.value.decode()) for row in rows.scalars()}
    return dict(sorted(found.items(), key=lambda each: each[1], reverse=True))


async def forget_secret(session: AsyncSession, retired: str) -> None:
    """Remove the record of a secret that is no longer used."""
    await session.execute(delete(InstallationRow).where(InstallationRow.key == f"{_SINCE}{retired}"))


async def _check_secret_keys(session: AsyncSession, secret_keys: SecretKeys) -> None:
    """Raise WrongSecretKey unless the current secret is known. Record the primary secret the first time."""
    known = await read_fact(session, _FINGERPRINT)
    fingerprints = zip(secret_keys.derive("fingerprint"), secret_keys.all, strict=True)
    current = [secret for each, secret in fingerprints if known is None or hmac.compare_digest(known, each)]
    if not current:
        raise WrongSecretKey(
            "This database was created with another secret key, or rotated to another one, so its API keys would not "
            "work. Start with its LORAGATE_SECRET_KEY (or the data directory's secret_key file), or add that one to "
            "LORAGATE_PREVIOUS_SECRET_KEYS."
        )
    # A secret that was the primary one before stays in the past: replicas that are restarted later still have it.
    if await read_fact(session, f"{_SINCE}{secret_keys.ids[0]}") is None:
        await _begin_secret(session, secret_keys, secret_id(current[0]))


async def _begin_secret(session: AsyncSession, secret_keys: SecretKeys, previous: str) -> None:
    """Record that the primary secret is the current one from now on."""
    primary = secret_keys.ids[0]
    if primary != previous:
        if len(await secrets_since(session)) <= 1:
            await _attribute_keys(session, previous)
        facts = {"previous": previous}
        await AuditLog(session, SYSTEM).record("secret_key.rotate", f"secret_key:{primary}", after=facts)
    await write_fact(session, _FINGERPRINT, secret_keys.derive("fingerprint")[0])
    await write_fact(session, _CURRENT, primary.encode())
    await write_fact(session, f"{_SINCE}{primary}", utc_now().isoformat().encode())


async def _attribute_keys(session: AsyncSession, only: str) -> None:
    """Record the only secret that there was for keys from before secrets had ids."""
    for kind in (ApiKeyRow, AdminKeyRow):
        await session.execute(update(kind).where(kind.secret_id.is_(None)).values(secret_id=only))


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
