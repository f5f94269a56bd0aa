"""The part of a publication that takes long and holds no transaction: check an upload and store its bytes."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from loragate.adapter_store.base_model.layout import layout_of
from loragate.adapter_store.blobs.blobs import TenantBlobs
from loragate.adapter_store.errors import AdapterInvalid
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.plan import AdapterPlan
from loragate.peft_format.read import AdapterReading, read_adapter
from loragate.v1 import engine_pb2

_MAX_TRAINED_TOKENS = 16  # of the tokens that it trained
_CHECKS_AT_ONCE = 2  # each one hashes a whole file: more would only starve the other users of the thread pool


@dataclass(frozen=True)
class StagedAdapter:
    """An adapter that passed the checks and whose bytes are durable, but which nothing refers to yet."""

    digest: str
    rank: int
    size_bytes: int
    config: bytes
    base_model: str
    base_digest: str
    own_tokens: tuple[int, ...] = ()  # a prompt that ends with these shows what it changes, where it needs some


class Stage:
    """One per process: bounds how many uploads are checked at once."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_CHECKS_AT_ONCE)

    async def prepare(
        self, config_json: bytes, tensors: Path | BinaryIO, manifest: engine_pb2.Manifest, blobs: TenantBlobs
    ) -> StagedAdapter:
        """Raises AdapterInvalid for what cannot be served; StorageFull and Unavailable of the blobs."""
        with _opened(tensors) as file:
            async with self._turns:
                reading = await asyncio.to_thread(_check, config_json, file, layout_of(manifest))
            size_bytes = await blobs.put(reading.digest, config_json, file)
        return StagedAdapter(
            digest=reading.digest,
            rank=reading.plan.max_rank,
            size_bytes=size_bytes,
            config=config_json,
            base_model=manifest.model_id,
            base_digest=manifest.base_digest,
            own_tokens=_own_tokens(reading.plan),
        )


def _own_tokens(plan: AdapterPlan) -> tuple[int, ...]:
    trained = (token for tokens in plan.trained_tokens.values() for token in tokens.token_ids)
    return (*islice(trained, _MAX_TRAINED_TOKENS), *(plan.invocation_tokens or ()))


def _check(config_json: bytes, file: BinaryIO, layout: BaseLayout) -> AdapterReading:
    size = file.seek(0, 2)
    file.seek(0)
    try:
        return read_adapter(config_json, file, size, layout)
    except AdapterRejected as refusal:
        raise AdapterInvalid(refusal.message, param=refusal.param) from refusal


@contextmanager
def _opened(tensors: Path | BinaryIO) -> Iterator[BinaryIO]:
    """A path is opened and closed here; an open file stays the caller's."""
    if isinstance(tensors, Path):
        with tensors.open("rb") as file:
            yield file
    else:
        yield tensors
