"""Staging: checks an upload, outside any transaction."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from loragate.adapter_store.base_model.layout import layout_of
from loragate.adapter_store.errors import AdapterInvalid
from loragate.adapter_store.signatures.policy import TenantPolicy
from loragate.peft_format.classification import Classifier
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.read import AdapterReading, read_adapter
from loragate.v1 import engine_pb2

_MAX_TRAINED_TOKENS = 16  # kept as part of the probe's prompt
_CHECKS_AT_ONCE = 2  # each one hashes a whole file: more would starve other users of the thread pool


@dataclass(frozen=True)
class StagedAdapter:
    """An adapter that passed the checks. `size_bytes` is that of its tensors' file."""

    digest: str
    rank: int
    size_bytes: int
    base_model: str
    base_digest: str
    own_tokens: tuple[int, ...] = ()  # a prompt must end with these for the adapter to take effect, if it needs any
    classifier: Classifier | None = None  # None: it generates


class Stage:
    """Bounds the number of uploads that are checked at once; one per process."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def signer_of(
        self, policy: TenantPolicy, signature: bytes | None, config_json: bytes, tensors: BinaryIO
    ) -> str | None:
        """Return the signer of an upload, as the policy requires one. Raise AdapterInvalid."""
        async with self._turns:
            return await asyncio.to_thread(policy.signer_of, signature, config_json, tensors)

    async def check(self, config_json: bytes, tensors: BinaryIO, manifest: engine_pb2.Manifest) -> StagedAdapter:
        """Check an upload. Raise AdapterInvalid."""
        async with self._turns:
            reading, size_bytes = await asyncio.to_thread(_check, config_json, tensors, layout_of(manifest))
        return StagedAdapter(
            digest=reading.digest,
            rank=reading.plan.max_rank,
            size_bytes=size_bytes,
            base_model=manifest.model_id,
            base_digest=manifest.base_digest,
            own_tokens=_own_tokens(reading.plan),
            classifier=None if reading.plan.classifier is None else reading.plan.classifier.classifier,
        )


def _own_tokens(plan: AdapterPlan) -> tuple[int, ...]:
    trained = (token for tokens in plan.trained_tokens.values() for token in tokens.token_ids)
    return (*islice(trained, _MAX_TRAINED_TOKENS), *(plan.invocation_tokens or ()))


def _check(config_json: bytes, file: BinaryIO, layout: BaseLayout) -> tuple[AdapterReading, int]:
    size = file.seek(0, 2)
    file.seek(0)
    try:
        return read_adapter(config_json, file, size, layout), size
    except AdapterRejected as rejected:
        raise AdapterInvalid(rejected.message, param=rejected.param) from rejected


@contextmanager
def opened(tensors: Path | BinaryIO) -> Iterator[BinaryIO]:
    """Open a path and close it afterwards; an open file is left to the caller."""
    if isinstance(tensors, Path):
        with tensors.open("rb") as file:
            yield file
    else:
        yield tensors
