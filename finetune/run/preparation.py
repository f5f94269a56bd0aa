"""A job's files as tokens on this machine."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from loragate.adapter_store.errors import Failure, NotFound
from loragate.adapter_store.files.file import Purpose
from loragate.adapter_store.jobs.job import Job
from loragate.adapter_store.store import Store
from loragate.finetune.data.formats import Method
from loragate.finetune.data.held_out import Split, split_samples
from loragate.finetune.data.invocation import InvocationTokens
from loragate.finetune.data.labels import LabelSet
from loragate.finetune.data.token_cache import CachedFile, TokenCache, label_facts
from loragate.finetune.data.token_file import TokenFile
from loragate.finetune.data.tokenization_config import TokenizationConfig
from loragate.finetune.data.validation import ValidationReport
from loragate.finetune.errors import JobRejected
from loragate.finetune.jobs.hyperparameters import HYPERPARAMETERS, Hyperparameters
from loragate.finetune.jobs.recipe import BaseFacts, DataFacts, Recipe, max_length_for, resolve_recipe
from loragate.finetune.run.base_adapter import constrain_to_base_adapter
from loragate.finetune.run.download import download, unnamed_file
from loragate.finetune.run.streaming_file import Report, StreamingTrainingFile


@dataclass(frozen=True)
class Prepared:
    """The input of training. `train` is None for a file that may still grow; `dataset_digest` is the training file's,
    as `sha256:…`; with `split`, some of its samples are held out."""

    recipe: Recipe
    train: TokenFile | None
    valid: TokenFile | None
    dataset_digest: str | None
    split: Split | None = None

    @property
    def tokens(self) -> int | None:
        """The tokens that all epochs train on; None for a file that may still grow."""
        if self.train is None:
            return None
        epoch = self.train.facts["tokens"] if self.split is None else self.train.lengths[self.split.train].sum()
        return int(epoch) * self.recipe.epochs


class Preparation:
    """Prepares jobs for one base model. Tokens are cached under `workspace`."""

    def __init__(self, store: Store, tokenization: TokenizationConfig, base: BaseFacts, workspace: Path) -> None:
        self._store = store
        self._tokenization = tokenization
        self._base = base
        self._drafts = workspace / "files"
        self._tokens = TokenCache(workspace / "tokens")

    async def prepare(self, tenant_id: str, job: Job) -> Prepared:
        """Validate and tokenize the job's files and resolve its recipe. Raise JobRejected, StoreError."""
        asked, method = _hyperparameters(job), Method(job.request.method)
        _check_quantization(asked, job, self._base)
        length = max_length_for(asked, self._base)
        train = digest = valid = facts = None
        if not asked.streaming:
            name = job.request.training_file
            train, digest = await self._tokenize_file(
                tenant_id, name, "training_file", method, length, asked.invocation
            )
            validated = job.request.validation_file is not None
            facts = DataFacts(train.facts["examples"], train.facts["tokens"], validated)
        if job.request.validation_file is not None:
            name = job.request.validation_file
            valid, _ = await self._tokenize_file(tenant_id, name, "validation_file", method, length, asked.invocation)
            _check_labels(train, valid)
        recipe = resolve_recipe(asked, method, self._base, facts, job.request.seed)
        recipe = await constrain_to_base_adapter(self._store, tenant_id, job, asked, recipe)
        split = None if train is None else await asyncio.to_thread(_split, train, recipe)
        return Prepared(recipe, train, valid, digest, split)

    def stream(self, tenant_id: str, job: Job, recipe: Recipe, folder: Path, report: Report) -> StreamingTrainingFile:
        """Return the training file of a job with `streaming`. Raise OSError."""
        expected = 0 if recipe.n_steps is None else recipe.n_steps * recipe.batch_size
        return StreamingTrainingFile(
            store=self._store,
            tenant_id=tenant_id,
            file_id=job.request.training_file,
            parent=folder,
            tokenization=self._tokenization,
            max_length=recipe.max_length,
            invocation=recipe.alora_invocation_tokens,
            method=recipe.method,
            expected=expected,
            report=report,
        )

    async def prune(self, max_bytes: int) -> None:
        """Delete cached tokens until at most `max_bytes` are left, except those in use."""
        await asyncio.to_thread(self._tokens.prune, max_bytes)

    async def forget_deleted(self) -> None:
        """Delete the cached tokens of files that no longer exist, except those in use. Raise StoreError."""
        for source in await asyncio.to_thread(self._tokens.files):
            try:
                async with self._store.tenant(source.tenant_id) as scope:
                    await scope.files.get(source.file_id, (Purpose.FINE_TUNE,))
            except NotFound:
                await asyncio.to_thread(self._tokens.remove, source)

    async def _tokenize_file(
        self,
        tenant_id: str,
        file_id: str,
        param: str,
        method: Method,
        max_length: int,
        invocation: InvocationTokens | None,
    ) -> tuple[TokenFile, str]:
        with unnamed_file(self._drafts) as file:
            hashed = hashlib.sha256()
            await download(self._store, tenant_id, await self._pieces(tenant_id, file_id, param), file, hashed)
            digest = f"sha256:{hashed.hexdigest()}"
            report, tokens = await self._read(CachedFile(tenant_id, file_id), file, digest, max_length, invocation)
        rejection = _rejection(report, method, is_training=param == "training_file")
        if rejection is not None or tokens is None:
            raise JobRejected(Failure(f"invalid_{param}", rejection or "The file has no examples.", param))
        return tokens, digest

    async def _read(
        self,
        source: CachedFile,
        file: BinaryIO,
        digest: str,
        max_length: int,
        invocation: InvocationTokens | None,
    ) -> tuple[ValidationReport, TokenFile | None]:
        """Tokenize the file in a thread. On cancellation, wait until the thread has stopped writing: the next attempt
        may write the same tokens."""
        reading = asyncio.create_task(
            asyncio.to_thread(self._tokens.tokens_of, source, file, digest, self._tokenization, max_length, invocation)
        )
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.to_thread(file.close)  # ends the thread at its next line
            await asyncio.gather(reading, return_exceptions=True)
            raise

    async def _pieces(self, tenant_id: str, file_id: str, param: str) -> Sequence[str]:
        try:
            async with self._store.tenant(tenant_id) as scope:
                await scope.files.get(file_id, (Purpose.FINE_TUNE,), param=param)
                return await scope.files.pieces(file_id)
        except NotFound as missing:
            raise JobRejected(Failure(missing.code, missing.message, param)) from None


def _hyperparameters(job: Job) -> Hyperparameters:
    return HYPERPARAMETERS[Method(job.request.method)].model_validate(dict(job.request.hyperparameters))


def _split(train: TokenFile, recipe: Recipe) -> Split | None:
    labels = label_facts(train)
    if labels is None or not recipe.validation_split:
        return None
    return split_samples(train, LabelSet.of(labels), recipe.validation_split, recipe.seed)


def _check_labels(train: TokenFile | None, valid: TokenFile) -> None:
    """Raise JobRejected for a validation file with labels that the training file does not have."""
    known, facts = None if train is None else label_facts(train), label_facts(valid)
    if known is None or facts is None:
        return
    reason = LabelSet.of(known).unknown(facts)
    if reason is not None:
        raise JobRejected(Failure("invalid_validation_file", reason, "validation_file"))


def _check_quantization(asked: Hyperparameters, job: Job, base: BaseFacts) -> None:
    """Raise JobRejected if weights that are saved quantized are to be quantized again."""
    if base.quantization and "quantization" in asked.model_fields_set and asked.quantization != "none":
        message = (
            f"The base model's weights are already quantized ({base.quantization}), and adapters are trained on them "
            "as they are: leave `quantization` out, or set it to 'none'."
        )
        path = f"method.{job.request.method}.hyperparameters.quantization"
        raise JobRejected(Failure("invalid_hyperparameters", message, path))


def _rejection(report: ValidationReport, method: Method, *, is_training: bool) -> str | None:
    return report.rejection(method) if is_training else report.rejection(method, min_examples=1)
