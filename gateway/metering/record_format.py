"""Usage records as lines of a file: a CRC-32 in hex, a blank, JSON."""

from binascii import crc32
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from loragate.adapter_store.usage.record import Outcome, UsageRecord

_FIELDS = frozenset(UsageRecord.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Lines:
    """What could be read. A last line without its end was being written when its writer died: it is not `damaged`."""

    records: list[UsageRecord]
    damaged: int = 0


def line_of(record: UsageRecord) -> bytes:
    """With its line feed."""
    document = orjson.dumps(record)
    return b"%08x %s\n" % (crc32(document), document)


def read_lines(content: bytes) -> Lines:
    """Every record whose line is whole."""
    records, damaged = [], 0
    for line in content.split(b"\n")[:-1]:
        document = line[9:]
        try:
            if line[:9] != b"%08x " % crc32(document):
                raise ValueError("the checksum does not fit")
            records.append(record_of(document))
        except (ValueError, TypeError, KeyError, AssertionError):
            damaged += 1
    return Lines(records, damaged)


def record_of(document: bytes) -> UsageRecord:
    """What `orjson.dumps` made of a record. Fields that another version wrote and this one lacks are left out."""
    fields: dict[str, Any] = {name: value for name, value in orjson.loads(document).items() if name in _FIELDS}
    fields["started_at"] = datetime.fromisoformat(fields["started_at"])
    fields["outcome"] = Outcome(fields["outcome"])
    return UsageRecord(**fields)
