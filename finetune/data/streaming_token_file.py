"""A token file that is read while it is written.

In addition to the files of a finished one (see `token_file`) it has `slots.u64`, the index while the file grows. A slot
holds the end of one sequence; slots are allocated before their sequences exist and are zero until then. A writer first
writes the tokens of a sequence, then stores its end, eight aligned bytes at once, so a reader sees either all of a
sequence or nothing. Initially there are as many slots as sequences are expected; each later allocation doubles them,
and a reader maps the index again that often. A closed file is an ordinary token file; until then a reader at the end
waits.

Allocating index slots before their samples exist is how TransferQueue keeps its streaming loaders from ending early
(github.com/Ascend/TransferQueue).
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.token_file import FACTS, LEARNED, OFFSETS, TOKENS, TokenFile, map_array

SLOTS = "slots.u64"
_MIN_SLOTS = 1024
POLL_SECONDS = 0.1
_SLOT_BYTES = 8
_BUFFER_BYTES = 1 << 20


Pause = Callable[[], None]


def sleep_poll_interval() -> None:
    """Wait between two checks of a file that may have grown."""
    time.sleep(POLL_SECONDS)


class StreamingFileError(ValueError):
    """Invalid use of a streaming token file."""


class AlreadyClosed(StreamingFileError):
    """A closed file takes no more sequences and cannot be closed again."""


class NotClosed(StreamingFileError):
    """The operation needs a closed file."""


class NoSuchSequence(StreamingFileError, IndexError):
    """There is no sequence with this index, or not yet."""


class InvalidPartition(StreamingFileError):
    """The partition's number is outside its range."""


@dataclass(frozen=True)
class Partition:
    """The share of one of `of` readers: every `of`-th place. Together the partitions cover every place exactly once."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise InvalidPartition(f"partition {self.number} of {self.of}: it must be 0 to {self.of - 1}")

    def place(self, index: int) -> int:
        """Return the place, among all, of the partition's `index`-th own."""
        if index < 0:
            raise NoSuchSequence(f"places count from 0: there is no place {index}")
        return index * self.of + self.number

    def size(self, places: int) -> int:
        """Return how many of `places` belong to this partition."""
        return max(0, -((self.number - places) // self.of))


class StreamingTokenWriter:
    """Writes a streaming token file into `folder`, which must not exist. `expected`: the number of sequences, 0 if
    unknown."""

    def __init__(self, folder: Path, expected: int = 0) -> None:
        if expected < 0:
            raise StreamingFileError(f"the number of expected sequences must not be negative, got {expected}")
        folder.mkdir(parents=True)
        self._folder = folder
        self._tokens, self._learned = (
            (folder / name).open("xb", buffering=_BUFFER_BYTES) for name in (TOKENS, LEARNED)
        )
        self._index = (folder / SLOTS).open("xb+", buffering=0)
        self._slots = self._allocate(expected + 1)
        self._unpublished: list[int] = []
        self._closed = False
        self.sequences = 0
        self.tokens = 0

    def __enter__(self) -> "StreamingTokenWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in (self._tokens, self._learned, self._index):
            file.close()

    def add(self, sample: Sample) -> None:
        """Append a sequence, which readers see once it is published. Raise AlreadyClosed, OSError."""
        self._require_open()
        if not len(sample.ids):
            raise StreamingFileError("a sequence has at least one token")
        self._tokens.write(sample.ids.astype("<u4", copy=False).tobytes())
        self._learned.write(sample.learned.tobytes())
        self.sequences += 1
        self.tokens += len(sample.ids)
        self._unpublished.append(self.tokens)

    def publish(self) -> None:
        """Make all added sequences visible to readers. Raise AlreadyClosed, OSError."""
        self._require_open()
        self._tokens.flush()
        self._learned.flush()
        first = self.sequences - len(self._unpublished) + 1
        if self.sequences >= len(self._slots):
            self._slots = self._allocate(max(2 * len(self._slots), self.sequences + 1))
        for slot, end in enumerate(self._unpublished, first):
            self._slots[slot] = end
        self._unpublished.clear()

    def tokens_of(self, sequences: int) -> int:
        """Return the number of tokens in the first `sequences` published sequences."""
        return int(self._slots[sequences])

    def finish(self, facts: dict[str, Any]) -> None:
        """Close the file, which is a `TokenFile` from now on. Raise AlreadyClosed, OSError."""
        self.publish()
        self._closed = True
        draft = self._folder / f"{OFFSETS}.tmp"
        draft.write_bytes(self._slots[: self.sequences + 1].tobytes())
        draft.rename(self._folder / OFFSETS)
        draft = self._folder / f"{FACTS}.tmp"
        draft.write_text(json.dumps(facts))
        draft.rename(self._folder / FACTS)

    def _require_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"{self._folder.name} is closed")

    def _allocate(self, slots: int) -> "np.memmap[Any, np.dtype[np.uint64]]":
        """Return the index with room for `slots`. The disk space is allocated at once, so that a full disk is reported
        here and not in the middle of a store."""
        slots = max(slots, _MIN_SLOTS)
        os.posix_fallocate(self._index.fileno(), 0, slots * _SLOT_BYTES)
        return np.memmap(self._index, "<u8", mode="r+", shape=(slots,))


class StreamingTokenFile:
    """Reads what a `StreamingTokenWriter` writes, also from other processes; each process maps the files itself."""

    def __init__(self, folder: Path) -> None:
        """Raise FileNotFoundError if there is no such file."""
        self.folder = folder
        self._slots = map_array(folder / SLOTS, "<u8")
        self._tokens = map_array(folder / TOKENS, "<u4")
        self._learned = map_array(folder / LEARNED, "?")
        self._count: int | None = None

    def __contains__(self, index: int) -> bool:
        """Return whether the sequence has been published."""
        if index < 0:
            return False
        if index + 1 >= len(self._slots):
            self._slots = map_array(self.folder / SLOTS, "<u8")
        return index + 1 < len(self._slots) and bool(self._slots[index + 1])

    def __getitem__(self, index: int) -> Sample:
        """Return a sequence as views into the files. Raise NoSuchSequence."""
        if index not in self:
            raise NoSuchSequence(f"there is no sequence {index}" + ("" if self.closed else " yet"))
        start, end = int(self._slots[index]), int(self._slots[index + 1])
        if end > len(self._tokens):
            self._tokens = map_array(self.folder / TOKENS, "<u4")
        if end > len(self._learned):
            self._learned = map_array(self.folder / LEARNED, "?")
        return Sample(self._tokens[start:end], self._learned[start:end])

    def __reduce__(self) -> tuple[type["StreamingTokenFile"], tuple[Path]]:
        return StreamingTokenFile, (self.folder,)

    @property
    def closed(self) -> bool:
        """Whether no more sequences will come."""
        return self._count is not None or (self.folder / FACTS).exists()

    def __len__(self) -> int:
        """Return the number of sequences. Raise NotClosed."""
        if self._count is None:
            if not self.closed:
                raise NotClosed(f"{self.folder.name} is still open: its length is known once it is closed")
            self._count = len(TokenFile(self.folder))
        return self._count

    def wait_for(self, index: int, pause: Pause = sleep_poll_interval) -> bool:
        """Wait until the sequence is published; return False once it never will be. `pause` is called between two
        checks and may raise."""
        while index not in self:
            if self.closed:
                return index < len(self)
            pause()
        return True
