"""Counters of the tokens delivered to running requests, in a file mapped into memory.

Writing to such memory costs no system call, and the kernel keeps it when the process dies, so the tokens delivered by
then are billed exactly. Only a power cut can lose the tokens delivered since the last `sync`.

Each running request has a slot of fixed size: five integers that change, then the record that it was opened with.
"""

import mmap
import os
import struct
import time
from binascii import crc32
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from loragate.adapter_store.usage.record import Outcome, UsageRecord
from loragate.gateway.metering.record_format import decode_record
from loragate.gateway.metering.spool import LIVE_COUNTERS

SLOTS = 8192
_SLOT_BYTES = 1024
# In native byte order and aligned, so that no number is ever read half written.
_COUNTS = struct.Struct("@QQQqq")  # prompt, completion and cached tokens; first token (-1: none) and duration, in ms
_RECORD = struct.Struct("@II")  # length and CRC-32 of the JSON that follows; length 0: the slot is free
_RECORD_AT = _COUNTS.size
_JSON_AT = _RECORD_AT + _RECORD.size
_NO_TOKENS = _COUNTS.pack(0, 0, 0, -1, 0)


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

    def take(self, record: UsageRecord) -> int | None:
        """Take a slot for a request that has not received any token; return None if all are in use."""
        document = orjson.dumps(record)
        if not self._free or len(document) > _SLOT_BYTES - _JSON_AT:
            return None
        slot = self._free.pop()
        at = slot * _SLOT_BYTES
        self._memory[at + _JSON_AT : at + _JSON_AT + len(document)] = document
        self._memory[at : at + _RECORD_AT] = _NO_TOKENS
        _RECORD.pack_into(self._memory, at + _RECORD_AT, len(document), crc32(document))
        return slot

    def update(
        self, slot: int, prompt: int, completion: int, cached: int, ttft_ms: int | None, duration_ms: int
    ) -> None:
        """Set what the request has received by now."""
        first = -1 if ttft_ms is None else ttft_ms
        _COUNTS.pack_into(self._memory, slot * _SLOT_BYTES, prompt, completion, cached, first, duration_ms)

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


def interrupted_records(folder: Path) -> list[UsageRecord]:
    """Return the records of the requests that a dead worker was serving, with what they had received."""
    try:
        content = (folder / LIVE_COUNTERS).read_bytes()
    except FileNotFoundError:
        return []
    return list(_interrupted(content))


def _interrupted(content: bytes) -> Iterator[UsageRecord]:
    for at in range(0, len(content) - _SLOT_BYTES + 1, _SLOT_BYTES):
        length, checksum = _RECORD.unpack_from(content, at + _RECORD_AT)
        document = content[at + _JSON_AT : at + _JSON_AT + length]
        if not length or crc32(document) != checksum:
            continue
        prompt, completion, cached, first, duration = _COUNTS.unpack_from(content, at)
        yield replace(
            decode_record(document),
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=min(cached, prompt),
            ttft_ms=None if first < 0 else first,
            duration_ms=duration,
            outcome=Outcome.CRASHED,
        )


class Meter:
    """Counts the tokens delivered to the client so far, and makes the request's one record at the end."""

    def __init__(
        self, opened: UsageRecord, counters: LiveCounters | None, ended: Callable[[UsageRecord, int | None], None]
    ) -> None:
        self._record = opened
        self._counters = counters
        self._ended = ended
        self._started = time.monotonic()
        self._slot = None if counters is None else counters.take(opened)
        self._counts = (0, 0, 0)
        self._ttft_ms: int | None = None

    def update(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int, *, durable: bool = True) -> None:
        """Set the totals by now, which are less than before if tokens could not be delivered after all.

        Totals that are not `durable` do not count if this process dies: the client has not received any of them yet.
        """
        elapsed = self._elapsed_ms()
        self._counts = counts = (prompt_tokens, completion_tokens, cached_tokens)
        if not any(counts):
            self._ttft_ms = None
        elif self._ttft_ms is None:
            self._ttft_ms = elapsed
        if durable and self._counters is not None and self._slot is not None:
            self._counters.update(self._slot, *counts, self._ttft_ms, elapsed)

    def close(self, outcome: Outcome) -> None:
        """Record that the request has ended. Return at once."""
        prompt, completion, cached = self._counts
        record = replace(
            self._record,
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached_tokens=min(cached, prompt),
            ttft_ms=self._ttft_ms,
            duration_ms=self._elapsed_ms(),
            outcome=outcome,
        )
        self._ended(record, self._slot)

    def _elapsed_ms(self) -> int:
        return round(1000 * (time.monotonic() - self._started))
