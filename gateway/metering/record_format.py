"""The file format of usage records: lines of a CRC-32 in hex, a space, JSON."""

from binascii import crc32
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from loragate.adapter_store.usage.record import Outcome, UsageRecord

_FIELDS = frozenset(UsageRecord.__dataclass_fields__)
_RENAMED = {"first_token_ms": "ttft_ms"}  # in files that are still spooled when the server is upgraded


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """The readable records. A last line without its end, on which the writer died, does not count as `damaged`."""

    records: list[UsageRecord]
    damaged: int = 0


def encode_record(record: UsageRecord) -> bytes:
    """Return the record's line, including its line feed."""
    document = orjson.dumps(record)
    return b"%08x %s\n" % (crc32(document), document)


def decode_records(content: bytes) -> DecodedRecords:
    """Return all records whose lines are complete and undamaged."""
    records, damaged = [], 0
    for line in content.split(b"\n")[:-1]:
        document = line[9:]
        try:
            if line[:9] != b"%08x " % crc32(document):
                raise ValueError("the checksum does not match")
            records.append(decode_record(document))
        except (ValueError, TypeError, KeyError, AssertionError):
            damaged += 1
    return DecodedRecords(records, damaged)


def decode_record(document: bytes) -> UsageRecord:
    """Decode a record that `orjson.dumps` encoded, without the fields that only other versions have."""
    return record_from(orjson.loads(document))


def record_from(document: Mapping[str, Any]) -> UsageRecord:
    """Return the record of which this is the JSON."""
    written = {_RENAMED.get(name, name): value for name, value in document.items()}
    fields: dict[str, Any] = {name: value for name, value in written.items() if name in _FIELDS}
    fields["started_at"] = datetime.fromisoformat(fields["started_at"])
    fields["outcome"] = Outcome(fields["outcome"])
    return UsageRecord(**fields)
