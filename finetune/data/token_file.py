"""Tokens on disk, read by memory map.

A token file is a folder with three flat files, little-endian: `tokens.u32` and `learned.u8` hold all sequences one
after the other, `offsets.u64` holds the start of each and, last, the total length. The labels of sequences that are
classified are in `labels.f64`, with `label_offsets.u64` likewise. `facts.json` is written when the
others are complete. Readers map the files: a sequence is a view, not a copy, and all processes share the page cache.
"""

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from loragate.finetune.data.encoding import Ids, Mask, Sample
from loragate.finetune.data.loss_mask import LabelNumbers

TOKENS, LEARNED, OFFSETS, FACTS = "tokens.u32", "learned.u8", "offsets.u64", "facts.json"
LABELS, LABEL_OFFSETS = "labels.f64", "label_offsets.u64"
_BUFFER_BYTES = 1 << 20
_OFFSET_BYTES = 8


class TokenFileBroken(ValueError):
    """The files are inconsistent with each other."""


class TokenFileWriter:
    """Writes into `folder`, which must not exist. The folder is a token file once `finish` has returned."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._files = {name: self._open(name) for name in (TOKENS, LEARNED, OFFSETS, LABELS, LABEL_OFFSETS)}
        for name in (OFFSETS, LABEL_OFFSETS):
            self._files[name].write(np.uint64(0).tobytes())
        self.sequences = 0
        self.tokens = 0
        self._labels = 0

    def __enter__(self) -> "TokenFileWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def add(self, sample: Sample) -> None:
        """Append a sequence. Raise OSError."""
        self._files[TOKENS].write(sample.ids.astype("<u4", copy=False).tobytes())
        self._files[LEARNED].write(sample.learned.tobytes())
        self.sequences += 1
        self.tokens += len(sample.ids)
        self._files[OFFSETS].write(self.tokens.to_bytes(8, "little"))
        if sample.label is not None:
            self._files[LABELS].write(np.array(sample.label, "<f8").tobytes())
            self._labels += len(sample.label)
            self._files[LABEL_OFFSETS].write(self._labels.to_bytes(8, "little"))

    def finish(self, facts: dict[str, Any]) -> None:
        """Sync everything to disk and write `facts`, which the caller chooses. Raise OSError."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        draft = self._folder / f"{FACTS}.tmp"
        draft.write_text(json.dumps(facts))
        draft.rename(self._folder / FACTS)

    def _open(self, name: str) -> BinaryIO:
        return (self._folder / name).open("xb", buffering=_BUFFER_BYTES)


class TokenFile:
    """A finished folder. It can be sent to other processes; each process maps the files itself."""

    def __init__(self, folder: Path) -> None:
        """Raise FileNotFoundError for an unfinished folder, TokenFileBroken for inconsistent files."""
        self.folder = folder
        self.facts: dict[str, Any] = json.loads((folder / FACTS).read_text())
        self._offsets = map_array(folder / OFFSETS, "<u8")
        self._tokens = map_array(folder / TOKENS, "<u4")
        self._learned = map_array(folder / LEARNED, "?")
        if not len(self._offsets) or not len(self._tokens) == len(self._learned) == self._offsets[-1]:
            raise TokenFileBroken(f"{folder.name}: its files are inconsistent with each other")
        self._labels, self._label_offsets = _map_labels(folder, len(self))

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The length of every sequence in tokens, `[sequences]`."""
        return np.diff(self._offsets.astype(np.int64))

    def __getitem__(self, index: int) -> Sample:
        """Return a sequence as views into the files. Raise IndexError."""
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} sequences: no sequence {index}")
        place = slice(int(self._offsets[index]), int(self._offsets[index + 1]))
        ids: Ids = self._tokens[place]
        learned: Mask = self._learned[place]
        return Sample(ids, learned, self.label(index))

    def label(self, index: int) -> LabelNumbers | None:
        """Return the label of a sequence; None where sequences have none."""
        if self._label_offsets is None:
            return None
        place = slice(int(self._label_offsets[index]), int(self._label_offsets[index + 1]))
        return tuple(self._labels[place].tolist())

    def __reduce__(self) -> tuple[type["TokenFile"], tuple[Path]]:
        return TokenFile, (self.folder,)


def _map_labels(folder: Path, sequences: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Map the labels and where each sequence's start; None if sequences have none. Raise TokenFileBroken."""
    if not (folder / LABEL_OFFSETS).exists() or (folder / LABEL_OFFSETS).stat().st_size <= _OFFSET_BYTES:
        return np.empty(0, "<f8"), None
    values, offsets = map_array(folder / LABELS, "<f8"), map_array(folder / LABEL_OFFSETS, "<u8")
    if len(offsets) != sequences + 1 or offsets[-1] != len(values):
        raise TokenFileBroken(f"{folder.name}: its labels are inconsistent with each other")
    return values, offsets


def map_array(path: Path, dtype: str) -> np.ndarray[Any, Any]:
    """Map a whole flat file. Raise TokenFileBroken."""
    if path.stat().st_size % np.dtype(dtype).itemsize:
        raise TokenFileBroken(f"{path.parent.name}/{path.name} ends in the middle of a number")
    if not path.stat().st_size:
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, mode="r"))
