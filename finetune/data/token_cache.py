"""The tokens of training files: produced once for each file, tokenizer and template, then reused.

They are never shared: a tenant could otherwise find out, by how long a file takes, whether another one has the same.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from loragate.finetune.data.encoding import Encoder, Sample
from loragate.finetune.data.errors import InvalidLine
from loragate.finetune.data.examples import LabelledChat, LabelledText
from loragate.finetune.data.formats import Format
from loragate.finetune.data.invocation import InvocationTokens, activated
from loragate.finetune.data.labels import LabelFacts
from loragate.finetune.data.loss_mask import MaskedText, RenderingBudget, masked_texts
from loragate.finetune.data.token_file import FACTS, TokenFile, TokenFileBroken, TokenFileWriter
from loragate.finetune.data.tokenization_config import TokenizationConfig
from loragate.finetune.data.truncation import Truncator
from loragate.finetune.data.validation import OnProgress, ValidationReport, Validator

_VERSION = 2  # raise it when examples are turned into tokens differently
_BATCH, _BATCH_CHARACTERS = 512, 1 << 18  # examples tokenized at once
_IN_USE_SECONDS = 600.0

_Example = tuple[int, list[MaskedText]]  # its line, its samples


@dataclass(frozen=True)
class Facts:
    """Statistics of a whole training file. `cut` samples were truncated; `dropped` ones had nothing to learn in what
    was left."""

    format: str
    examples: int
    sequences: int
    tokens: int
    learned: int  # tokens
    cut: int
    dropped: int
    labels: dict[str, Any] | None = None  # `LabelFacts`


@dataclass(frozen=True, slots=True)
class CachedFile:
    """A tenant's training file, by its ids."""

    tenant_id: str
    file_id: str


class TokenCache:
    """Token files under one folder, by tenant, then by training file, then by everything that determines their content.
    Only one process may write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def tokens_of(
        self,
        source: CachedFile,
        file: BinaryIO,
        digest: str,
        tokenization: TokenizationConfig,
        max_length: int,
        invocation: InvocationTokens | None = None,
        on_progress: OnProgress = lambda _: None,
    ) -> tuple[ValidationReport, TokenFile | None]:
        """Return the validation report and the tokens of the file, whose content has this digest, in samples of at most
        `max_length` tokens, of which those after the last `invocation` are learned.

        There are no tokens for a file with problems. Raise OSError when the disk is full; nothing is left behind then.
        """
        place = self._place(source) / _key(digest, tokenization, max_length, invocation)
        with suppress(FileNotFoundError, TokenFileBroken):
            found = TokenFile(place)
            os.utime(place)  # records the use
            labels = label_facts(found)
            return ValidationReport(Format(found.facts["format"]), found.facts["examples"], labels=labels), found
        draft = place.with_suffix(".tmp")
        for rest in (place, draft):
            shutil.rmtree(rest, ignore_errors=True)
        try:
            report = _tokenize(file, draft, tokenization, max_length, invocation, on_progress)
            if report.problems or not report.examples:
                return report, None
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return report, TokenFile(place)

    def prune(self, max_bytes: int, in_use_seconds: float = _IN_USE_SECONDS) -> None:
        """Remove the least recently used files until at most `max_bytes` are left, but none used within
        `in_use_seconds`."""
        for place in self._folder.glob(f"*/{FACTS}"):  # of a version that shared tokens between tenants
            shutil.rmtree(place.parent, ignore_errors=True)
        kept = sorted((place for place in self._folder.glob("*/*/*") if place.is_dir()), key=_used_at)
        sizes = {place: sum(file.stat().st_size for file in place.iterdir()) for place in kept}
        total = sum(sizes.values())
        for place in kept:
            if total <= max_bytes or time.time() - _used_at(place) < in_use_seconds:
                return
            shutil.rmtree(place, ignore_errors=True)
            total -= sizes[place]

    def files(self) -> list[CachedFile]:
        """Return the files of which there are tokens."""
        return [CachedFile(place.parent.name, place.name) for place in self._folder.glob("*/*") if place.is_dir()]

    def remove(self, source: CachedFile, in_use_seconds: float = _IN_USE_SECONDS) -> None:
        """Remove the tokens of a file that no longer exists, except those used within `in_use_seconds`."""
        folder = self._place(source)
        for place in folder.iterdir():
            if time.time() - _used_at(place) >= in_use_seconds:
                shutil.rmtree(place, ignore_errors=True)
        for empty in (folder, folder.parent):
            with suppress(OSError):  # something is left in it
                empty.rmdir()

    def _place(self, source: CachedFile) -> Path:
        return self._folder / source.tenant_id / source.file_id


def label_facts(tokens: TokenFile) -> LabelFacts | None:
    """Return the labels of the file that these tokens are from; None if it has none."""
    document = tokens.facts.get("labels")
    return None if document is None else LabelFacts.from_document(document)


def _used_at(place: Path) -> float:
    return place.stat().st_mtime


def _tokenize(
    file: BinaryIO,
    folder: Path,
    tokenization: TokenizationConfig,
    max_length: int,
    invocation: InvocationTokens | None,
    on_progress: OnProgress,
) -> ValidationReport:
    with TokenFileWriter(folder) as writer:
        tokenizer = FileTokenizer(writer, tokenization, max_length, invocation, on_progress)
        for _ in tokenizer.take(file):
            pass
        report = tokenizer.report
        if not report.problems and report.examples:
            writer.finish(asdict(tokenizer.facts))
    return report


class Writer(Protocol):
    """A destination of samples."""

    sequences: int
    tokens: int

    def add(self, sample: Sample) -> None:
        """Append a sample. Raise OSError."""
        ...


class FileTokenizer:
    """Tokenizes one file, whose lines may come in several portions."""

    def __init__(
        self,
        writer: Writer,
        tokenization: TokenizationConfig,
        max_length: int,
        invocation: InvocationTokens | None = None,
        on_progress: OnProgress = lambda _: None,
    ) -> None:
        self._max_length = max_length
        self._invocation = invocation
        self._tokenization = tokenization
        self._validator = Validator(on_progress)
        self._budget = RenderingBudget()
        self._encoder = Encoder(tokenization.tokenizer, tokenization.end_ids)
        self._truncator = Truncator(tokenization.tokenizer, tokenization.end_ids, max_length)
        self._samples = _CountingWriter(writer)

    @property
    def report(self) -> ValidationReport:
        """The validation report of the lines so far."""
        return self._validator.report

    @property
    def facts(self) -> Facts:
        """Statistics of the lines so far, of which at least one must be an example."""
        return self._samples.facts(self.report)

    def take(self, file: BinaryIO) -> Iterator[None]:
        """Tokenize all lines up to the file's end, yielding between batches. Nothing is written after the first
        problem. Raise OSError."""
        for batch in _batches(self._masked(file), _BATCH):
            if self._validator.has_problems and self._invocation is None:
                continue  # no tokens will be kept: only further problems matter, and they are not in tokens
            samples = iter(self._encoder.encode([text for _, texts in batch for text in texts]))
            for line, texts in batch:
                self._add(line, texts, list(islice(samples, len(texts))))
            yield

    def _add(self, line: int, texts: list[MaskedText], samples: list[Sample]) -> None:
        """Write the samples of one example, or record its problem."""
        kept = [sample.cut(self._max_length) for sample in samples]
        truncated = sum(len(sample.ids) > self._max_length for sample in samples)
        try:
            if self._invocation is not None:
                kept = activated(texts, kept, self._invocation, truncated=truncated > 0)
        except InvalidLine as error:
            self._validator.reject(line, error)
        if not self._validator.has_problems:
            self._samples.add(kept, truncated)

    def _masked(self, file: BinaryIO) -> Iterator[_Example]:
        template = self._tokenization.template
        for line, example in self._validator.examples(file):
            self._budget.add(len(line.content))
            try:
                texts = masked_texts(example, template, self._budget)
                if isinstance(example, LabelledText | LabelledChat):
                    label = self._validator.labels.numbers(example.label)
                    texts = [replace(text, label=label) for text in texts]
                yield line.number, [self._truncator.truncate(text) for text in texts]
            except InvalidLine as error:
                self._validator.reject(line.number, error)


class _CountingWriter:
    """Writes samples into a token file and counts them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._learned = self._cut = self._dropped = 0

    def add(self, samples: list[Sample], truncated: int) -> None:
        """Write the samples of one example: all or none, since preferences come in pairs. `truncated`: how many are."""
        if not all(sample.has_targets for sample in samples):
            self._dropped += 1
            return
        self._cut += truncated
        for sample in samples:
            self._learned += int(sample.learned.sum())
            self._writer.add(sample)

    def facts(self, report: ValidationReport) -> Facts:
        """Return the statistics, once all samples are written."""
        assert report.format is not None
        return Facts(
            format=report.format.value,
            examples=report.examples,
            sequences=self._writer.sequences,
            tokens=self._writer.tokens,
            learned=self._learned,
            cut=self._cut,
            dropped=self._dropped,
            labels=None if report.labels is None else report.labels.to_document(),
        )


def _batches(examples: Iterable[_Example], size: int) -> Iterator[list[_Example]]:
    """Yield batches of at most `size` examples, fewer if they are long: while they are encoded, tokens take some
    hundred bytes each."""
    batch: list[_Example] = []
    characters = 0
    for line, texts in examples:
        batch.append((line, texts))
        characters += sum(len(each.text) for each in texts)
        if len(batch) == size or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _key(digest: str, tokenization: TokenizationConfig, max_length: int, invocation: InvocationTokens | None) -> str:
    facts = (_VERSION, digest, tokenization.digest, max_length, *([] if invocation is None else [invocation]))
    return hashlib.sha256(repr(facts).encode()).hexdigest()
