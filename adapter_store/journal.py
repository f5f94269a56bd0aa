"""The journal: what a restoration of an older database must not undo, in the blob store.

It outlives the loss of the database and is shared by all processes. Each entry is a small file that is written once
and never changed; its name says everything, so that one listing reads the journal:

    journal/ended.api_key.<id>.<us>     the key ended at this time, by revocation, or by a rotation with a grace period
            ended.admin_key.<id>.<us>
            ended.tenant.<id>.<us>      a tenant was deleted, and all its keys with it
            ended.all_keys.<us>         a restoration revoked all tenants' keys
            replaced.admin_key.<us>     the installation's admin key was replaced
            epoch.<n>                   a restoration began this epoch
            numbers.<n>                 version numbers up to n may have been given
            backup.<id>                 a backup began; entries since then are complete, if this one is there

`us` is Unix time in microseconds. An entry is written after the commit of its change and before the change is
acknowledged. If that fails, `catch_up` writes it later, from the audit log.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO

import orjson
from sqlalchemy import select

from loragate.adapter_store.audit.log import RecordedChange
from loragate.adapter_store.blobs.blobs import Blobs
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.error_mapping import blob_faults
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.tables.audit import AuditRow
from loragate.adapter_store.timestamps import utc_now

log = logging.getLogger(__name__)

API_KEY, ADMIN_KEY, TENANT = "api_key", "admin_key", "tenant"
_ENDS = {"api_key.revoke": API_KEY, "api_key.expire": API_KEY, "admin_key.revoke": ADMIN_KEY, "tenant.delete": TENANT}
_REPLACED = "admin_key.set"
NUMBERS = 1000  # numbers that an entry covers, and that every installation may give without one
_EVERY = NUMBERS // 2
_UNIX_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_OVERDUE = timedelta(days=8)  # older entries have been caught up, or never will be


@dataclass(frozen=True)
class JournalContent:
    """What the entries say. Ends are the earliest known for each id."""

    backups: frozenset[str]
    ends: Mapping[str, Mapping[str, datetime]]  # by kind and id
    all_keys_ended: datetime | None
    admin_key_replaced: datetime | None
    numbers: int  # the highest version number that may have been given, at least NUMBERS
    epoch: int  # the last; 0 before the first restoration


class Journal:
    """The journal of one blob store. Methods raise StorageFull and Unavailable."""

    def __init__(self, blobs: Blobs) -> None:
        self._objects = blobs.raw.objects
        self._folder = f"{blobs.raw.root}/journal"
        self._drafts = f"{self._folder}-drafts"

    async def names(self) -> list[str]:
        with blob_faults():
            return await asyncio.to_thread(self._objects.names, self._folder)

    async def read(self) -> JournalContent:
        return content_of(await self.names())

    async def add(self, names: Iterable[str]) -> None:
        """Write entries durably."""
        with blob_faults():
            await asyncio.to_thread(self._add, list(names))

    async def record(self, changes: Sequence[RecordedChange]) -> None:
        """Write the entries of changes that were committed. If that fails, a later `catch_up` writes them."""
        names = [name for change in changes if (name := _entry_of(change)) is not None]
        if names:
            with _logged_failures():
                await self.add(names)

    async def cover_number(self, version: int) -> None:
        """Write, now and then, that numbers beyond this one may be given. Call it before the version is visible."""
        if version % _EVERY == 0:
            await self.add([numbers_entry(version)])

    async def begin_backup(self, backup_id: str) -> None:
        await self.add([f"backup.{backup_id}"])

    async def record_admin_key(self) -> None:
        """Write that the installation's admin key was replaced."""
        await self.record([RecordedChange(_REPLACED, "", utc_now(), None)])

    async def catch_up(self, database: Database) -> None:
        """Write the entries that are missing, because the blob store was unavailable or a process died."""
        row, since = AuditRow, utc_now() - _OVERDUE
        wanted = row.created_at >= since, row.action.in_([*_ENDS, _REPLACED])
        async with database.operator() as session:
            rows = await session.execute(select(row.action, row.target, row.created_at, row.after).where(*wanted))
            changes = [RecordedChange(*found[:3], orjson.loads(found.after or b"null")) for found in rows]
        names = {name for change in changes if (name := _entry_of(change)) is not None}
        if names:
            await self.add(sorted(names.difference(await self.names())))

    def _add(self, names: Sequence[str]) -> None:
        for name in names:
            self._objects.write(f"{self._folder}/{name}", BytesIO(b"\n"), self._drafts)
        if names:
            self._objects.settle(self._folder)


def numbers_entry(version: int) -> str:
    """Return the entry that must be there before numbers beyond the block of `version` are given."""
    return f"numbers.{(version // NUMBERS + 2) * NUMBERS}"


def epoch_entry(epoch: int) -> str:
    return f"epoch.{epoch}"


def all_keys_entry(moment: datetime) -> str:
    return f"ended.all_keys.{_microseconds(moment)}"


def content_of(names: Iterable[str]) -> JournalContent:
    """Return what the entries say; files that are none are ignored."""
    backups = set[str]()
    ends: dict[str, dict[str, datetime]] = {API_KEY: {}, ADMIN_KEY: {}, TENANT: {}}
    all_keys = list[datetime]()
    replaced = list[datetime]()
    numbers, epoch = NUMBERS, 0
    for name in names:
        with suppress(ValueError, OverflowError):
            match name.split("."):
                case ["backup", backup_id]:
                    backups.add(backup_id)
                case ["numbers", number]:
                    numbers = max(numbers, int(number))
                case ["epoch", number]:
                    epoch = max(epoch, int(number))
                case ["replaced", "admin_key", us]:
                    replaced.append(_moment(us))
                case ["ended", "all_keys", us]:
                    all_keys.append(_moment(us))
                case ["ended", kind, which, us] if kind in ends:
                    moment = _moment(us)
                    ends[kind][which] = min(moment, ends[kind].get(which, moment))
    return JournalContent(
        backups=frozenset(backups),
        ends=ends,
        all_keys_ended=max(all_keys, default=None),
        admin_key_replaced=max(replaced, default=None),
        numbers=numbers,
        epoch=epoch,
    )


@contextmanager
def _logged_failures() -> Iterator[None]:
    """Log the store's errors instead of raising them."""
    try:
        yield
    except StoreError as error:
        log.warning("the journal for restorations cannot be written; it is tried again later: %s", error.message)


def _entry_of(change: RecordedChange) -> str | None:
    """Return the name of a change's entry; None for changes that a restoration may undo."""
    if change.action == _REPLACED:
        return f"replaced.admin_key.{_microseconds(change.moment)}"
    kind = _ENDS.get(change.action)
    if kind is None:
        return None
    after = change.after or {}
    moment = after.get("expires_at") if change.action == "api_key.expire" else change.moment
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    return f"ended.{kind}.{change.target.partition(':')[2]}.{_microseconds(moment or change.moment)}"


def _microseconds(moment: datetime) -> int:
    return (moment - _UNIX_TIME) // timedelta(microseconds=1)


def _moment(microseconds: str) -> datetime:
    return _UNIX_TIME + timedelta(microseconds=int(microseconds))
