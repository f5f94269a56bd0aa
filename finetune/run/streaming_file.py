"""A training file that still grows, followed to its end: each line becomes tokens as soon as it is there."""

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
from loragate.finetune.data.streaming_token_file import StreamingTokenWriter
from loragate.finetune.data.token_cache import FileTokenizer
from loragate.finetune.data.tokenization_config import TokenizationConfig
from loragate.finetune.errors import JobRejected
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.run.download import draft, fetch

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_PURPOSES = (Purpose.FINE_TUNE,)
_FOLDER = "lines-"
_PARAM = "training_file"

Tell = Callable[[str], Awaitable[None]]


class StreamingTrainingFile:
    """Of one attempt at a job. Tokens come to lie in `folder`, a new one under `parent`, from the file's first line on:
    what an attempt before had made may end in the middle of something, and the same lines make the same tokens.

    `expected`: how many samples there may be, where somebody knows. `tell` hears what the tenant should know.
    """

    def __init__(
        self,
        store: Store,
        tenant_id: str,
        file_id: str,
        parent: Path,
        tokenization: TokenizationConfig,
        max_length: int,
        method: Method,
        expected: int,
        tell: Tell,
    ) -> None:
        """Raises OSError."""
        for rest in parent.glob(f"{_FOLDER}*"):
            shutil.rmtree(rest, ignore_errors=True)
        self.folder = parent / f"{_FOLDER}{secrets.token_hex(4)}"
        self._store = store
        self._tenant_id = tenant_id
        self._file_id = file_id
        self._drafts = parent
        self._method = method
        self._tell = tell
        self._writer = StreamingTokenWriter(self.folder, expected)
        self._tokenizer = FileTokenizer(self._writer, tokenization, max_length)
        self._digest = hashlib.sha256()
        self._taken = 0  # pieces

    @property
    def digest(self) -> str:
        """Of what has come so far."""
        return f"sha256:{self._digest.hexdigest()}"

    def trained(self, steps: int, recipe: Recipe) -> int:
        """Tokens that so many steps have gone through."""
        samples = steps * recipe.batch_size * (2 if recipe.method is Method.DPO else 1)
        epochs, rest = divmod(samples, max(1, self._writer.sequences))
        if epochs >= recipe.epochs:
            return self._writer.tokens * recipe.epochs
        return self._writer.tokens * epochs + self._writer.tokens_of(rest)

    async def run(self) -> None:
        """Until the file is closed and all of it has become tokens. Raises JobRejected, OSError."""
        with self._writer:
            while True:
                if await self._follow():
                    break
                await asyncio.sleep(_POLL_SECONDS)
            refusal = self._tokenizer.report.rejection(self._method)
            if refusal is not None:
                raise _refused(refusal)
            self._writer.finish(asdict(self._tokenizer.facts))

    async def _follow(self) -> bool:
        """What is there now; whether it was all."""
        try:
            async with self._store.tenant(self._tenant_id) as scope:
                file = await scope.files.get(self._file_id, _PURPOSES, param=_PARAM)
                pieces = await scope.files.pieces(self._file_id, skip=self._taken)
            if pieces:
                await self._take(pieces)
            if file.open_until is not None and not file.is_open:
                await self._close(file)
                return False  # the very last lines may have come just before
            return file.open_until is None
        except NotFound as gone:
            raise JobRejected(Failure(gone.code, gone.message, _PARAM)) from None
        except StoreError as error:
            log.warning("the training file %s is not to be read now: %s", self._file_id, error)
            return False

    async def _take(self, pieces: Sequence[str]) -> None:
        with draft(self._drafts) as lines:
            digest = self._digest.copy()
            await fetch(self._store, self._tenant_id, pieces, lines, digest)
            await asyncio.to_thread(self._tokenize, lines)
        self._digest = digest
        self._taken += len(pieces)
        self._check()

    def _tokenize(self, lines: BinaryIO) -> None:
        for _ in self._tokenizer.take(lines):
            self._writer.publish()

    def _check(self) -> None:
        report = self._tokenizer.report
        if report.problem_count or report.format is not None:
            refusal = report.rejection(self._method, min_examples=0)
            if refusal is not None:
                raise _refused(refusal)

    async def _close(self, file: File) -> None:
        async with self._store.tenant(self._tenant_id, write=True) as scope:
            await scope.files.close(file.id, _PURPOSES)
        await self._tell("Nothing was appended to the file for an hour: it is closed, and its last line is the job's.")


def _refused(words: str) -> JobRejected:
    return JobRejected(Failure(f"invalid_{_PARAM}", words, _PARAM))
