"""A token file that grows while it is read.

Beside the files of a finished one (`token_file`) it has `slots.u64`, the index while it grows: room for the end of each
sequence, taken before there are any, and zero until the sequence is there. A writer first writes a sequence's tokens,
then stores its end, eight aligned bytes at once: a reader sees a whole sequence or none. Room is taken for as many as
are expected (0 without a word), later for twice as many: a reader maps the index anew that often, and no oftener. Once
it is closed it is a token file like any other; until then a reader who has come to its end waits.

Taking places in the index before their samples exist is how TransferQueue keeps its streaming loaders from ending early
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
from loragate.finetune.data.token_file import FACTS, LEARNED, OFFSETS, TOKENS, TokenFile, mapped

SLOTS = "slots.u64"
_FEWEST_SLOTS = 1024
POLL_SECONDS = 0.1
_SLOT_BYTES = 8
_BUFFER_BYTES = 1 << 20


Pause = Callable[[], None]


def sleep_poll_interval() -> None:
    """Between two looks at a file that may have grown."""
    time.sleep(POLL_SECONDS)


class StreamingFileError(ValueError):
    """A growing token file is not used as it can be."""


class AlreadyClosed(StreamingFileError):
    """Nothing is added to a closed one, and it is closed once."""


class NotClosed(StreamingFileError):
    """That can be told, or read, only once it is closed."""


class NoSuchSequence(StreamingFileError, IndexError):
    """There is none of this number, or not yet."""


class InvalidPartition(StreamingFileError):
    """There is no such share of the work."""


@dataclass(frozen=True)
class Partition:
    """One of so many readers' share: every `of`-th place. Together they are all places, and none twice."""

    number: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise InvalidPartition(f"partition {self.number} of {self.of}: it must be 0 to {self.of - 1}")

    def place(self, index: int) -> int:
        """Of the partition's own `index`-th, among all."""
        if index < 0:
            raise NoSuchSequence(f"places count from 0, and there is none of number {index}")
        return index * self.of + self.number

    def size(self, places: int) -> int:
        """How many of so many are its own."""
        return max(0, -((self.number - places) // self.of))


class StreamingTokenWriter:
    """Writes into `folder`, which is new. `expected`: how many sequences there may be, where somebody knows."""

    def __init__(self, folder: Path, expected: int = 0) -> None:
        if expected < 0:
            raise StreamingFileError(f"{expected} sequences cannot be expected")
        folder.mkdir(parents=True)
        self._folder = folder
        self._tokens, self._learned = (
            (folder / name).open("xb", buffering=_BUFFER_BYTES) for name in (TOKENS, LEARNED)
        )
        self._index = (folder / SLOTS).open("xb+", buffering=0)
        self._slots = self._roomy(expected + 1)
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
        """Behind the others; seen once it is published. Raises AlreadyClosed, OSError."""
        self._must_grow()
        if not len(sample.ids):
            raise StreamingFileError("a sequence has at least one token")
        self._tokens.write(sample.ids.astype("<u4", copy=False).tobytes())
        self._learned.write(sample.learned.tobytes())
        self.sequences += 1
        self.tokens += len(sample.ids)
        self._unpublished.append(self.tokens)

    def publish(self) -> None:
        """What was added is there for all who read. Raises AlreadyClosed, OSError."""
        self._must_grow()
        self._tokens.flush()
        self._learned.flush()
        first = self.sequences - len(self._unpublished) + 1
        if self.sequences >= len(self._slots):
            self._slots = self._roomy(max(2 * len(self._slots), self.sequences + 1))
        for slot, end in enumerate(self._unpublished, first):
            self._slots[slot] = end
        self._unpublished.clear()

    def tokens_of(self, sequences: int) -> int:
        """In the first so many, of those that are published."""
        return int(self._slots[sequences])

    def finish(self, facts: dict[str, Any]) -> None:
        """All of it is there, and nothing else comes: a `TokenFile`. Raises AlreadyClosed, OSError."""
        self.publish()
        self._closed = True
        draft = self._folder / f"{OFFSETS}.tmp"
        draft.write_bytes(self._slots[: self.sequences + 1].tobytes())
        draft.rename(self._folder / OFFSETS)
        told = self._folder / f"{FACTS}.tmp"
        told.write_text(json.dumps(facts))
        told.rename(self._folder / FACTS)

    def _must_grow(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"{self._folder.name} is closed")

    def _roomy(self, slots: int) -> "np.memmap[Any, np.dtype[np.uint64]]":
        """The disk's room is taken at once: one that is full says so here, and not in the middle of a store."""
        slots = max(slots, _FEWEST_SLOTS)
        os.posix_fallocate(self._index.fileno(), 0, slots * _SLOT_BYTES)
        return np.memmap(self._index, "<u8", mode="r+", shape=(slots,))


class StreamingTokenFile:
    """Reads what a `StreamingTokenWriter` writes, also in other processes; each maps the files for itself."""

    def __init__(self, folder: Path) -> None:
        """Raises FileNotFoundError."""
        self.folder = folder
        self._slots = mapped(folder / SLOTS, "<u8")
        self._tokens = mapped(folder / TOKENS, "<u4")
        self._learned = mapped(folder / LEARNED, "?")
        self._count: int | None = None

    def __contains__(self, index: int) -> bool:
        """It is there."""
        if index < 0:
            return False
        if index + 1 >= len(self._slots):
            self._slots = mapped(self.folder / SLOTS, "<u8")
        return index + 1 < len(self._slots) and bool(self._slots[index + 1])

    def __getitem__(self, index: int) -> Sample:
        """Views into the files. Raises NoSuchSequence."""
        if index not in self:
            raise NoSuchSequence(f"there is no sequence {index}" + ("" if self.closed else " yet"))
        start, end = int(self._slots[index]), int(self._slots[index + 1])
        if end > len(self._tokens):
            self._tokens = mapped(self.folder / TOKENS, "<u4")
        if end > len(self._learned):
            self._learned = mapped(self.folder / LEARNED, "?")
        return Sample(self._tokens[start:end], self._learned[start:end])

    def __reduce__(self) -> tuple[type["StreamingTokenFile"], tuple[Path]]:
        return StreamingTokenFile, (self.folder,)

    @property
    def closed(self) -> bool:
        """Nothing else comes."""
        return self._count is not None or (self.folder / FACTS).exists()

    def __len__(self) -> int:
        """Raises NotClosed."""
        if self._count is None:
            if not self.closed:
                raise NotClosed(f"{self.folder.name} still grows: how many there will be is known once it is closed")
            self._count = len(TokenFile(self.folder))
        return self._count

    def wait_for(self, index: int, pause: Pause = sleep_poll_interval) -> bool:
        """Until it is there; False once there will be none. `pause` is called between two looks, and may raise."""
        while index not in self:
            if self.closed:
                return index < len(self)
            pause()
        return True
