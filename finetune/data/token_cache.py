"""A training file's tokens: made once for each tokenizer and template, then found again."""

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol

from loragate.finetune.data.encoding import Encoder, Sample
from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.formats import Format
from loragate.finetune.data.loss_mask import MaskedText, marked
from loragate.finetune.data.token_file import TokenFile, TokenFileBroken, TokenFileWriter
from loragate.finetune.data.tokenization_config import TokenizationConfig
from loragate.finetune.data.truncation import Truncator
from loragate.finetune.data.validation import Told, ValidationReport, Validator

_VERSION = 1  # of what becomes of an example
_BATCH, _BATCH_CHARACTERS = 512, 1 << 18  # examples tokenised at once
_IN_USE_SECONDS = 600.0


@dataclass(frozen=True)
class Facts:
    """Of a whole training file. `cut` samples were too long, `dropped` ones had nothing to learn in what was left."""

    format: str
    examples: int
    sequences: int
    tokens: int
    learned: int  # tokens
    cut: int
    dropped: int


class TokenCache:
    """Token files under one folder, by what they were made of. One process at a time makes any one of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tokens_of(
        self,
        file: BinaryIO,
        digest: str,
        tokenization: TokenizationConfig,
        max_length: int,
        told: Told = lambda _: None,
    ) -> tuple[ValidationReport, TokenFile | None]:
        """Of a file with this digest, in samples of at most `max_length` tokens; no tokens of one with problems.

        Raises OSError when the disk is full; nothing is left behind then.
        """
        place = self._folder / _key(digest, tokenization, max_length)
        with suppress(FileNotFoundError, TokenFileBroken):
            found = TokenFile(place)
            os.utime(place)  # it was needed
            return ValidationReport(Format(found.facts["format"]), found.facts["examples"]), found
        draft = place.with_suffix(".tmp")
        for rest in (place, draft):
            shutil.rmtree(rest, ignore_errors=True)
        try:
            report = _tokenize(file, draft, tokenization, max_length, told)
            if report.problem_count or not report.examples:
                return report, None
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return report, TokenFile(place)

    def prune(self, most: int, in_use_seconds: float = _IN_USE_SECONDS) -> None:
        """What was needed the longest time ago goes, until at most `most` bytes are left; never what was needed just
        now."""
        kept = sorted((place for place in self._folder.glob("*") if place.is_dir()), key=_needed_at)
        sizes = {place: sum(file.stat().st_size for file in place.iterdir()) for place in kept}
        total = sum(sizes.values())
        for place in kept:
            if total <= most or time.time() - _needed_at(place) < in_use_seconds:
                return
            shutil.rmtree(place, ignore_errors=True)
            total -= sizes[place]


def _needed_at(place: Path) -> float:
    return place.stat().st_mtime


def _tokenize(
    file: BinaryIO, folder: Path, tokenization: TokenizationConfig, max_length: int, told: Told
) -> ValidationReport:
    with TokenFileWriter(folder) as writer:
        tokenizer = FileTokenizer(writer, tokenization, max_length, told)
        for _ in tokenizer.take(file):
            pass
        report = tokenizer.report
        if not report.problem_count and report.examples:
            writer.finish(asdict(tokenizer.facts))
    return report


class Writer(Protocol):
    """Whatever samples are put into."""

    sequences: int
    tokens: int

    def add(self, sample: Sample) -> None:
        """Behind the others. Raises OSError."""
        ...


class FileTokenizer:
    """Of one file, whose lines may come in several portions."""

    def __init__(
        self, writer: Writer, tokenization: TokenizationConfig, max_length: int, told: Told = lambda _: None
    ) -> None:
        self._tokenization = tokenization
        self._validator = Validator(told)
        self._encoder = Encoder(tokenization.tokenizer, tokenization.end_ids)
        self._truncator = Truncator(tokenization.tokenizer, tokenization.end_ids, max_length)
        self._tally = _Tally(writer, max_length)

    @property
    def report(self) -> ValidationReport:
        """So far."""
        return self._validator.report

    @property
    def facts(self) -> Facts:
        """So far; there must be an example."""
        return self._tally.facts(self.report)

    def take(self, file: BinaryIO) -> Iterator[None]:
        """All lines to the file's end, and a breath between batches. Nothing more is written once there is a problem.
        Raises OSError."""
        for batch in _batches(self._marked(file), _BATCH):
            if self._validator.problem_count:
                continue  # there will be no tokens: only more problems are of interest
            samples = iter(self._encoder.encode([text for texts in batch for text in texts]))
            for texts in batch:
                self._tally.add(list(islice(samples, len(texts))))
            yield

    def _marked(self, file: BinaryIO) -> Iterator[list[MaskedText]]:
        for line, example in self._validator.examples(file):
            try:
                yield [self._truncator.of(text) for text in marked(example, self._tokenization.template)]
            except InvalidLine as refused:
                self._validator.refuse(line, refused)


class _Tally:
    """Puts samples into a token file and counts what becomes of them."""

    def __init__(self, writer: Writer, max_length: int) -> None:
        self._writer = writer
        self._max_length = max_length
        self._learned = self._cut = self._dropped = 0

    def add(self, samples: list[Sample]) -> None:
        """Of one example: all or none, since preferences come in pairs."""
        kept = [sample.cut(self._max_length) for sample in samples]
        if not all(sample.teaches for sample in kept):
            self._dropped += 1
            return
        self._cut += sum(len(sample.ids) > self._max_length for sample in samples)
        for sample in kept:
            self._learned += int(sample.learned.sum())
            self._writer.add(sample)

    def facts(self, report: ValidationReport) -> Facts:
        """Once all are in."""
        assert report.format is not None
        return Facts(
            format=report.format.value,
            examples=report.examples,
            sequences=self._writer.sequences,
            tokens=self._writer.tokens,
            learned=self._learned,
            cut=self._cut,
            dropped=self._dropped,
        )


def _batches(examples: Iterable[list[MaskedText]], size: int) -> Iterator[list[list[MaskedText]]]:
    """So many at once, or fewer long ones: their tokens take some hundred bytes each on the way."""
    batch: list[list[MaskedText]] = []
    characters = 0
    for texts in examples:
        batch.append(texts)
        characters += sum(len(each.text) for each in texts)
        if len(batch) == size or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _key(digest: str, tokenization: TokenizationConfig, max_length: int) -> str:
    return hashlib.sha256(repr((_VERSION, digest, tokenization.digest, max_length)).encode()).hexdigest()
