"""Follows a training file that still grows to its end, tokenizing each line as soon as it is appended."""

import asyncio
import hashlib
import logging
import secrets
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from loragate.adapter_store.errors import Failure, NotFound, StoreError
from loragate.adapter_store.files.file import File, Purpose
from loragate.adapter_store.store import Store
from loragate.finetune.data.formats import Method
from loragate.finetune.data.invocation import InvocationTokens
from loragate.finetune.data.streaming_token_file import StreamingTokenWriter
from loragate.finetune.data.token_cache import FileTokenizer
from loragate.finetune.data.tokenization_config import TokenizationConfig
from loragate.finetune.errors import JobRejected
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.run.download import download, unnamed_file

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_PURPOSES = (Purpose.FINE_TUNE,)
_FOLDER_PREFIX = "lines-"
_PARAM = "training_file"

Report = Callable[[str], Awaitable[None]]


class StreamingTrainingFile:
    """The training file of one attempt at a job with `streaming`.

    Tokens are written to `folder`, a new one under `parent`, starting at the file's first line: the output of a
    previous attempt may be incomplete, and the same lines give the same tokens. `expected`: the number of samples, 0 if
    unknown. `report` records an event for the tenant.
    """

    def __init__(
        self,
        store: Store,
        tenant_id: str,
        file_id: str,
        parent: Path,
        tokenization: TokenizationConfig,
        max_length: int,
        invocation: InvocationTokens | None,
        method: Method,
        expected: int,
        report: Report,
    ) -> None:
        """Raise OSError if the folder cannot be created."""
        for rest in parent.glob(f"{_FOLDER_PREFIX}*"):
            shutil.rmtree(rest, ignore_errors=True)
        self.folder = parent / f"{_FOLDER_PREFIX}{secrets.token_hex(4)}"
        self._store = store
        self._tenant_id = tenant_id
        self._file_id = file_id
        self._drafts = parent
        self._method = method
        self._report = report
        self._writer = StreamingTokenWriter(self.folder, expected)
        self._tokenizer = FileTokenizer(self._writer, tokenization, max_length, invocation)
        self._digest = hashlib.sha256()
        self._pieces_read = 0

    @property
    def digest(self) -> str:
        """The digest of the lines so far."""
        return f"sha256:{self._digest.hexdigest()}"

    def trained_tokens(self, steps: int, recipe: Recipe) -> int:
        """Return the tokens that `steps` steps have processed."""
        samples = steps * recipe.batch_size * (2 if recipe.method is Method.DPO else 1)
        epochs, rest = divmod(samples, max(1, self._writer.sequences))
        if epochs >= recipe.epochs:
            return self._writer.tokens * recipe.epochs
        return self._writer.tokens * epochs + self._writer.tokens_of(rest)

    async def run(self) -> None:
        """Follow the file until it is closed and tokenized. Raise JobRejected, OSError."""
        with self._writer:
            while True:
                if await self._read_available():
                    break
                await asyncio.sleep(_POLL_SECONDS)
            rejection = self._tokenizer.report.rejection(self._method)
            if rejection is not None:
                raise _rejected(rejection)
            self._writer.finish(asdict(self._tokenizer.facts))

    async def _read_available(self) -> bool:
        """Tokenize what is available now; return whether that was all."""
        try:
            async with self._store.tenant(self._tenant_id) as scope:
                file = await scope.files.get(self._file_id, _PURPOSES, param=_PARAM)
                pieces = await scope.files.pieces(self._file_id, skip=self._pieces_read)
            if pieces:
                await self._take(pieces)
            if file.open_until is not None and not file.is_open:
                await self._close(file)
                return False  # the last lines may have been appended just before
            return file.open_until is None
        except NotFound as gone:
            raise JobRejected(Failure(gone.code, gone.message, _PARAM)) from None
        except StoreError as error:
            log.warning("the training file %s cannot be read at the moment: %s", self._file_id, error)
            return False

    async def _take(self, pieces: Sequence[str]) -> None:
        with unnamed_file(self._drafts) as lines:
            digest = self._digest.copy()
            await download(self._store, self._tenant_id, pieces, lines, digest)
            await asyncio.to_thread(self._tokenize, lines)
        self._digest = digest
        self._pieces_read += len(pieces)
        self._check()

    def _tokenize(self, lines: BinaryIO) -> None:
        for _ in self._tokenizer.take(lines):
            self._writer.publish()

    def _check(self) -> None:
        report = self._tokenizer.report
        if report.problems or report.format is not None:
            rejection = report.rejection(self._method, min_examples=0)
            if rejection is not None:
                raise _rejected(rejection)

    async def _close(self, file: File) -> None:
        async with self._store.tenant(self._tenant_id, write=True) as scope:
            await scope.files.close(file.id, _PURPOSES)
        await self._report(
            "The file was closed: nothing had been appended for an hour. The job ends with its last line."
        )


def _rejected(message: str) -> JobRejected:
    return JobRejected(Failure(f"invalid_{_PARAM}", message, _PARAM))
