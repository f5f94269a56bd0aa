"""Hashes of keys made again with the primary secret, after a rotation, when their keys are used."""

from dataclasses import dataclass, field

from sqlalchemy import Table, Update, bindparam, update

from loragate.adapter_store.auth.credentials import KeyHasher
from loragate.adapter_store.auth.installation import (
    ADMIN_KEY_HASH,
    ADMIN_KEY_SECRET,
    current_secret_id,
    read_fact,
    write_fact,
)
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.tables.admin_keys import AdminKeyRow
from loragate.adapter_store.tables.tenants import ApiKeyRow

_MAX_WAITING = 10_000
_INSTALLATIONS = ""  # the installation's admin key, in place of a key's id
_Kind = type[ApiKeyRow] | type[AdminKeyRow]


@dataclass(frozen=True)
class _Renewal:
    old: bytes = field(repr=False)
    new: bytes = field(repr=False)


class Rehashing:
    """Collects the hashes in memory while keys are looked up, and writes them in batches."""

    def __init__(self, database: Database, hasher: KeyHasher) -> None:
        self._database = database
        self._hasher = hasher
        self._waiting: dict[tuple[_Kind, str], _Renewal] = {}

    def add(self, row: ApiKeyRow | AdminKeyRow, key: str) -> None:
        """Make the hash of a valid key again, unless it was made with the primary secret."""
        if row.secret_id != self._hasher.primary_id:
            self._add(type(row), row.id, key, row.key_hash)

    def add_admin_key(self, key: str, stored: bytes) -> None:
        """Make the hash of the installation's admin key again, unless it was made with the primary secret."""
        if not self._hasher.matches(key, stored, self._hasher.primary_id):
            self._add(AdminKeyRow, _INSTALLATIONS, key, stored)

    def _add(self, kind: _Kind, key_id: str, key: str, stored: bytes) -> None:
        if len(self._waiting) < _MAX_WAITING:
            self._waiting[kind, key_id] = _Renewal(stored, self._hasher.hash(key))

    async def write(self) -> None:
        """Write what was collected. Replicas that have not yet got the current secret as their primary one write
        nothing: they would undo what the others have written."""
        waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            await self._write(waiting)
        except StoreError:
            self._waiting = waiting | self._waiting
            raise

    async def _write(self, waiting: dict[tuple[_Kind, str], _Renewal]) -> None:
        async with self._database.operator(write=True) as session:
            if await current_secret_id(session) != self._hasher.primary_id:
                return
            installations = waiting.get((AdminKeyRow, _INSTALLATIONS))
            if installations is not None and await read_fact(session, ADMIN_KEY_HASH) == installations.old:
                await write_fact(session, ADMIN_KEY_HASH, installations.new)
                await write_fact(session, ADMIN_KEY_SECRET, self._hasher.primary_id.encode())
            connection = await session.connection()
            for kind in (ApiKeyRow, AdminKeyRow):
                rows = [
                    {"key_id": key_id, "old": renewal.old, "new": renewal.new}
                    for (of, key_id), renewal in waiting.items()
                    if of is kind and key_id != _INSTALLATIONS
                ]
                if rows:
                    await connection.execute(_renewing(kind, self._hasher.primary_id), rows)


def _renewing(kind: _Kind, primary_id: str) -> Update:
    keys = kind.__table__
    assert isinstance(keys, Table)
    unchanged = (keys.c.id == bindparam("key_id"), keys.c.key_hash == bindparam("old"))
    return update(keys).where(*unchanged).values(key_hash=bindparam("new"), secret_id=primary_id)
