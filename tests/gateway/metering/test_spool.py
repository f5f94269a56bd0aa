"""Usage on the disk: acknowledged records can always be read, wherever writing was interrupted."""

import errno
import os
import struct
from binascii import crc32
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loragate.adapter_store.limits import MAX_LIMIT
from loragate.adapter_store.usage.record import Outcome
from loragate.engine.config import MAX_MODEL_ID
from loragate.gateway.limits.operations import LeaseRecord
from loragate.gateway.limits.subject import Subject
from loragate.gateway.metering import spool as spool_module
from loragate.gateway.metering.live_counters import LiveCounters, interrupted_requests
from loragate.gateway.metering.record_format import decode_record, decode_records, encode_record
from loragate.gateway.metering.recovery import lock_dead_workers
from loragate.gateway.metering.spool import Spool
from tests.gateway.usage_records import opened

RECORDS = [opened(prompt_tokens=i, completion_tokens=i * i, request_id=f"req_{i}") for i in range(12)]
LINES = [encode_record(record) for record in RECORDS]


def contents(spool: Spool) -> list[Any]:
    spool.seal()
    return [record for path in spool.sealed() for record in decode_records(path.read_bytes()).records]


@given(st.integers(0, len(b"".join(LINES))))
def test_a_truncated_file_keeps_every_whole_line(cut: int) -> None:
    whole = 0
    while len(b"".join(LINES[: whole + 1])) <= cut and whole < len(LINES):
        whole += 1
    lines = decode_records(b"".join(LINES)[:cut])
    assert lines.records == RECORDS[:whole]
    assert lines.damaged == 0


@given(st.integers(0, len(b"".join(LINES)) - 1), st.integers(1, 255))
def test_a_flipped_byte_costs_its_own_line_only(at: int, flip: int) -> None:
    content = bytearray(b"".join(LINES))
    content[at] ^= flip
    lines = decode_records(bytes(content))
    ends = [len(b"".join(LINES[: i + 1])) for i in range(len(LINES))]
    hit = next(i for i, end in enumerate(ends) if at < end)
    lost = {RECORDS[hit].id} | ({RECORDS[hit + 1].id} if at == ends[hit] - 1 and hit + 1 < len(RECORDS) else set())
    assert {record.id for record in lines.records} == {record.id for record in RECORDS} - lost
    assert lines.damaged >= 1 or hit == len(RECORDS) - 1


def test_unknown_fields_of_another_version_are_ignored() -> None:
    line = encode_record(RECORDS[3])[9:-1].replace(b'{"id"', b'{"colour":"red","id"')
    assert decode_record(line) == RECORDS[3]


def test_a_line_from_before_a_fields_renaming_keeps_its_value() -> None:
    record = replace(RECORDS[3], ttft_ms=17)
    assert decode_record(encode_record(record)[9:-1].replace(b'"ttft_ms"', b'"first_token_ms"')) == record


def test_appended_records_are_read_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    spool.append(b"".join(LINES[:5]))
    spool.sync()
    assert spool.sealed() == []
    spool.seal()
    assert len(spool.sealed()) == 1
    spool.append(b"".join(LINES[5:]))
    assert contents(spool) == RECORDS
    spool.close(remove=True)
    assert spool.folder.exists()  # for the worker that takes it over


def test_segments_have_a_maximum_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "_SEGMENT_BYTES", 1000)
    spool = Spool(tmp_path)
    for line in LINES:
        spool.append(line)
    assert len(spool.sealed()) > 3
    assert contents(spool) == RECORDS


def test_an_empty_folder_is_removed_with_its_worker(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    spool.close(remove=True)
    assert list((tmp_path / "usage").iterdir()) == []


@given(st.integers(0, len(b"".join(LINES[:3])) - 1))
def test_a_full_disk_loses_no_accepted_record(tmp_path_factory: pytest.TempPathFactory, room: int) -> None:
    """The disk accepts `room` bytes of the second append and no more; the third append fits again."""
    spool = Spool(tmp_path_factory.mktemp("usage"))
    spool.append(LINES[0])
    real, left = os.write, [room]

    def write(descriptor: int, content: Any) -> int:
        taken = min(len(content), left[0])
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= taken
        return real(descriptor, content[:taken])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space"):
            spool.append(b"".join(LINES[1:4]))
    spool.append(b"".join(LINES[1:4]))
    found = contents(spool)
    assert {record.id for record in found} == {record.id for record in RECORDS[:4]}
    assert all(record in RECORDS for record in found)


def test_a_live_workers_folder_is_left_alone_and_a_dead_ones_taken_over_once(tmp_path: Path) -> None:
    alive, dead = Spool(tmp_path), Spool(tmp_path)
    dead.append(LINES[0])
    assert lock_dead_workers(tmp_path, alive.folder) == []
    dead.close(remove=True)
    (found,) = lock_dead_workers(tmp_path, alive.folder)
    assert [decode_records(path.read_bytes()).records for path in found.segments()] == [[RECORDS[0]]]
    assert lock_dead_workers(tmp_path, alive.folder) == []  # another worker recovers it
    found.release()
    (again,) = lock_dead_workers(tmp_path, alive.folder)
    for path in again.segments():
        path.unlink()
    again.remove()
    again.release()
    assert list(tmp_path.iterdir()) == [alive.folder]


def test_incomplete_folders_are_removed(tmp_path: Path) -> None:
    alive = Spool(tmp_path)
    (tmp_path / "1-empty").mkdir()
    (tmp_path / "2-kept").mkdir()
    (tmp_path / "2-kept" / "000000000001.segment.kept").write_bytes(b"something to look at")
    assert lock_dead_workers(tmp_path, alive.folder) == []
    assert not (tmp_path / "1-empty").exists()
    assert (tmp_path / "2-kept" / "000000000001.segment.kept").exists()


def test_open_calls_outlive_their_process(tmp_path: Path) -> None:
    calls = LiveCounters(tmp_path, slots=4)
    first, second, third = (opened() for _ in range(3))
    slots = [calls.take(record) for record in (first, second, third)]
    calls.update(slots[0], 7, 3, 2, 15, 200, 5, 4)  # type: ignore[arg-type]
    calls.update(slots[1], 1, 1, 0, None, 9)  # type: ignore[arg-type]
    calls.free(slots[1])  # type: ignore[arg-type]
    cut = {"outcome": Outcome.CRASHED}
    expected = {
        replace(
            first,
            prompt_tokens=7,
            completion_tokens=3,
            cached_tokens=2,
            ttft_ms=15,
            duration_ms=200,
            computed_prompt_tokens=5,
            generated_tokens=4,
            **cut,
        ),
        replace(third, computed_prompt_tokens=0, generated_tokens=0, **cut),
    }
    assert {request.record for request in interrupted_requests(tmp_path)} == expected
    assert calls.in_use == 2


def test_a_reused_slot_has_no_delivered_tokens(tmp_path: Path) -> None:
    calls = LiveCounters(tmp_path, slots=1)
    slot = calls.take(opened())
    assert slot is not None
    assert calls.take(opened()) is None
    calls.update(slot, 7, 3, 2, 15, 200)
    calls.free(slot)
    calls.take(opened())
    record = interrupted_requests(tmp_path)[0].record
    assert (record.prompt_tokens, record.completion_tokens, record.ttft_ms) == (0, 0, None)


def test_the_longest_record_has_a_slot(tmp_path: Path) -> None:
    """Every field as long as it may be, and a lease on every limit: it would not be billed after a crash without."""
    kinds = ("requests", "tokens", "concurrency", "day", "month")
    subject = Subject("a:" + "i" * 64, "", {}, dict.fromkeys(kinds, MAX_LIMIT))  # type: ignore[arg-type]  # of kinds
    longest = opened(
        request_id="r" * 128,
        tenant_id="t" * 64,
        key_id="k" * 64,
        endpoint="completions",
        base_model="\U00010348" * MAX_MODEL_ID,
        adapter="a" * 64,
        adapter_version=10**15,
        adapter_alias="l" * 64,
    )
    calls = LiveCounters(tmp_path, slots=1)
    assert calls.take(longest, LeaseRecord("l" * 32, MAX_LIMIT, [subject] * 3)) is not None
    (found,) = interrupted_requests(tmp_path)
    assert (found.record.id, found.lease) == (longest.id, LeaseRecord("l" * 32, MAX_LIMIT, [subject] * 3))


def test_counters_of_the_version_before_are_read(tmp_path: Path) -> None:
    """A worker of it was killed, and the server was upgraded."""
    document = orjson.dumps(RECORDS[0])
    slot = struct.pack("@QQQqqII", 7, 3, 2, 15, 200, len(document), crc32(document)) + document
    (tmp_path / "open").write_bytes(slot.ljust(1024, b"\0") + bytes(1024))
    (found,) = interrupted_requests(tmp_path)
    record = replace(RECORDS[0], prompt_tokens=7, completion_tokens=3, cached_tokens=2, ttft_ms=15, duration_ms=200)
    assert found.record == replace(record, outcome=Outcome.CRASHED)
    assert found.lease is None


def test_missing_space_for_slots_is_reported_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        LiveCounters(tmp_path)
    assert list(tmp_path.iterdir()) == []
