"""Counters of the tokens of running requests, in a file mapped into memory.

Writing to such memory costs no system call, and the kernel keeps it when the process dies, so the tokens delivered by
then are billed exactly. Only a power cut can lose the tokens counted since the last `sync`.

Each running request has a slot of fixed size: seven integers that change, then the record that it was opened with and
its lease on the limits.
"""

import mmap
import os
import struct
import time
from binascii import crc32
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.metering.record_format import record_from
from loragate.gateway.metering.spool import LIVE_COUNTERS, OLD_LIVE_COUNTERS

SLOTS = 8192
_SLOT_BYTES = 2560
# In native byte order and aligned, so that no number is ever read half written: prompt, completion and cached tokens
# that were delivered, first token (-1: none) and duration in ms, then prompt and generated tokens that were computed.
_COUNTS = struct.Struct("@QQQqqQQ")
_RECORD = struct.Struct("@II")  # length and CRC-32 of the JSON that follows; length 0: the slot is free
_RECORD_AT = _COUNTS.size
_JSON_AT = _RECORD_AT + _RECORD.size
MAX_RECORD_BYTES = _SLOT_BYTES - _JSON_AT
_OLD_SLOT_BYTES = 1024
_OLD_COUNTS = struct.Struct("@QQQqq")  # without what was computed, and without the lease
_NO_TOKENS = _COUNTS.pack(0, 0, 0, -1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class InterruptedRequest:
    """A request that a dead worker was serving; `lease` is None if nothing limits it."""

    record: UsageRecord
    lease: LeaseRecord | None

    @property
    def computed_tokens(self) -> int:
        """The tokens that count for its limits."""
        record = self.record
        return (record.computed_prompt_tokens or 0) + record.cached_tokens + (record.generated_tokens or 0)


class LiveCounters:
    """One per worker. Slots are taken, updated and freed in the event loop; `sync` may run in another thread."""

    def __init__(self, folder: Path, slots: int = SLOTS) -> None:
        """Raise OSError, also if the disk has no room for all slots: the space is reserved at once."""
        size = slots * _SLOT_BYTES
        self._file = os.open(folder / LIVE_COUNTERS, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._file, 0, size)
            self._memory = mmap.mmap(self._file, size)
        except OSError:
            os.close(self._file)
            (folder / LIVE_COUNTERS).unlink()
            raise
        self._slots = slots
        self._free = list(range(slots))

    @property
    def in_use(self) -> int:
        """The number of slots taken."""
        return self._slots - len(self._free)

    def take(self, record: UsageRecord, lease: LeaseRecord | None = None) -> int | None:
        """Take a slot for a request that has not received any token; return None if all are in use."""
        document = _document(record, lease)
        if not self._free or len(document) > MAX_RECORD_BYTES:
            return None
        slot = self._free.pop()
        at = slot * _SLOT_BYTES
        self._memory[at + _JSON_AT : at + _JSON_AT + len(document)] = document
        self._memory[at : at + _RECORD_AT] = _NO_TOKENS
        _RECORD.pack_into(self._memory, at + _RECORD_AT, len(document), crc32(document))
        return slot

    def update(
        self,
        slot: int,
        prompt: int,
        completion: int,
        cached: int,
        ttft_ms: int | None,
        duration_ms: int,
        computed_prompt: int = 0,
        generated: int = 0,
    ) -> None:
        """Set what the request has received, and what was computed for it, by now."""
        first = -1 if ttft_ms is None else ttft_ms
        at = slot * _SLOT_BYTES
        _COUNTS.pack_into(self._memory, at, prompt, completion, cached, first, duration_ms, computed_prompt, generated)

    def free(self, slot: int) -> None:
        """Free the slot, because the request's record is stored elsewhere."""
        _RECORD.pack_into(self._memory, slot * _SLOT_BYTES + _RECORD_AT, 0, 0)
        self._free.append(slot)

    def sync(self) -> None:
        """Write the counters to the disk. Raise OSError."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file, which stays."""
        self._memory.close()
        os.close(self._file)


def used_slots(content: bytes) -> bytes:
    """Return the slots in use of a file, which are read like a whole one."""
    slots = (content[at : at + _SLOT_BYTES] for at in range(0, len(content) - _SLOT_BYTES + 1, _SLOT_BYTES))
    return b"".join(slot for slot in slots if _RECORD.unpack_from(slot, _RECORD_AT)[0])


def interrupted_requests(folder: Path) -> list[InterruptedRequest]:
    """Return the requests that a dead worker was serving, with what they had used."""
    running, old = folder / LIVE_COUNTERS, folder / OLD_LIVE_COUNTERS
    found = list(_interrupted(running.read_bytes())) if running.exists() else []
    return found + (list(_interrupted_before(old.read_bytes())) if old.exists() else [])


def _document(record: UsageRecord, lease: LeaseRecord | None) -> bytes:
    return orjson.dumps([record, None if lease is None else lease.wire])


def _interrupted(content: bytes) -> Iterator[InterruptedRequest]:
    for counts, document in _slots(content, _SLOT_BYTES, _COUNTS):
        opened, lease = orjson.loads(document)
        record = replace(_crashed(opened, counts), computed_prompt_tokens=counts[5], generated_tokens=counts[6])
        yield InterruptedRequest(record, None if lease is None else LeaseRecord.from_wire(lease))


def _interrupted_before(content: bytes) -> Iterator[InterruptedRequest]:
    for counts, document in _slots(content, _OLD_SLOT_BYTES, _OLD_COUNTS):
        yield InterruptedRequest(_crashed(orjson.loads(document), counts), None)


def _slots(content: bytes, size: int, layout: struct.Struct) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Yield the counts and the JSON of each slot in use."""
    for at in range(0, len(content) - size + 1, size):
        length, checksum = _RECORD.unpack_from(content, at + layout.size)
        start = at + layout.size + _RECORD.size
        document = content[start : start + length]
        if length and crc32(document) == checksum:
            yield layout.unpack_from(content, at), document


def _crashed(opened: Mapping[str, Any], counts: tuple[int, ...]) -> UsageRecord:
    prompt, completion, cached, first, duration, *_ = counts
    return replace(
        record_from(opened),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=min(cached, prompt),
        ttft_ms=None if first < 0 else first,
        duration_ms=duration,
        outcome=Outcome.CRASHED,
    )


class Meter:
    """Counts the tokens of one request so far, and makes its one record at the end."""

    def __init__(
        self,
        opened: UsageRecord,
        counters: LiveCounters | None,
        ended: Callable[[UsageRecord, int | None], None],
        lease: LeaseRecord | None = None,
    ) -> None:
        self._opened = opened
        self._counters = counters
        self._ended = ended
        self._started = time.monotonic()
        self._slot = None if counters is None else counters.take(opened, lease)
        self._delivered = (0, 0, 0)
        self._ttft_ms: int | None = None
        self._durable: tuple[int, int, int, int | None, int] = (0, 0, 0, None, 0)
        self._computed = (0, 0)
        self._outcome, self._duration_ms = Outcome.FAILED, 0

    def update(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int, *, durable: bool = True) -> None:
        """Set the totals delivered by now, which are less than before if tokens could not be delivered after all.

        Totals that are not `durable` do not count if this process dies: the client has not received any of them yet.
        """
        elapsed = self._elapsed_ms()
        self._delivered = delivered = (prompt_tokens, completion_tokens, cached_tokens)
        if not any(delivered):
            self._ttft_ms = None
        elif self._ttft_ms is None:
            self._ttft_ms = elapsed
        if durable:
            self._durable = (*delivered, self._ttft_ms, elapsed)
        if self._counters is not None and self._slot is not None:
            self._counters.update(self._slot, *self._durable, *self._computed)

    def record_computed(self, prompt_tokens: int, generated_tokens: int) -> None:
        """Set the totals computed by now, without what was found in the cache. The next `update` keeps them for the
        case that this process dies."""
        self._computed = prompt_tokens, generated_tokens

    def end(self, outcome: Outcome) -> None:
        """Record how and when the request ended for its client."""
        self._outcome, self._duration_ms = outcome, self._elapsed_ms()

    def close(self, engine_id: str | None = None) -> None:
        """Record that the engine has ended the request as well, after `end`. Return at once."""
        prompt, completion, cached = self._delivered
        record = replace(
            self._opened,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=min(cached, prompt),
            ttft_ms=self._ttft_ms,
            duration_ms=self._duration_ms,
            outcome=self._outcome,
            computed_prompt_tokens=self._computed[0],
            generated_tokens=self._computed[1],
            engine_id=engine_id,
        )
        self._ended(record, self._slot)

    def _elapsed_ms(self) -> int:
        return round(1000 * (time.monotonic() - self._started))
