"""The output file and the error file of a batch, from its results in the database."""

from collections.abc import AsyncIterator, Iterable

from loragate.adapter_store.batches.batch import BatchStatus
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.files.file import FileFacts, Purpose
from loragate.gateway.batches.held_batch import HeldBatch
from loragate.gateway.batches.input_lines import portions
from loragate.gateway.batches.line import output_line
from loragate.gateway.batches.validation import parse_line

_PORTION = 200
_EXPIRED = {
    "code": "batch_expired",
    "message": "The request was not run before the batch's completion window ended.",
}


async def finish(held: HeldBatch) -> None:
    """Write the files, and end the batch. A file that exists already is not written again.

    Raise Conflict (`quota_exceeded`) and StorageFull if the tenant or the server has no room for them.
    """
    assert held.batch.ending is not None
    await _write(held, failed=False)
    await _write(held, failed=True)
    more = True
    while more:
        async with held.scope(write=True) as scope:
            more = await scope.batch_lease.remove_results(*held.lease)
    async with held.scope(write=True) as scope:
        await scope.batch_lease.end(*held.lease, held.batch.ending)


async def _write(held: HeldBatch, *, failed: bool) -> None:
    batch, use = held.batch, held.use
    if (batch.error_file if failed else batch.output_file) is not None:
        return
    async with held.scope() as scope:
        room = await scope.files.room()
    with use.spool_space.open(held.tenant_id, room) as space:
        async with space.file() as content:
            async for text in _texts(held, failed=failed):
                await space.write(content, text)
            space.received()
            size = content.seek(0, 2)
            if size:
                name = f"{batch.id}_{'error' if failed else 'output'}.jsonl"
                facts = FileFacts(name, Purpose.BATCH_OUTPUT, batch.output_seconds)
                async with held.scope(write=True) as scope:
                    file = await scope.files.create(facts, content, size)
                    held.batch = await scope.batch_lease.record_file(*held.lease, file.id, failed=failed)


async def _texts(held: HeldBatch, *, failed: bool) -> AsyncIterator[bytes]:
    """Yield the lines of a file, some at a time."""
    after: int | None = 0
    while after is not None:
        async with held.scope() as scope:
            results = await scope.batch_lease.results(held.batch.id, failed=failed, after=after, limit=_PORTION)
        yield _joined(result.result for result in results)
        after = results[-1].number if results else None
    if failed and held.batch.ending is BatchStatus.EXPIRED:
        async for text in _expired(held):
            yield text


async def _expired(held: HeldBatch) -> AsyncIterator[bytes]:
    """Yield an error for each line that was not run, as far as the input file still exists."""
    try:
        chunks = await held.input()
    except NotFound:
        return
    async for portion in portions(chunks, held.use.config.max_json_bytes):
        async with held.scope() as scope:
            known = await scope.batch_lease.finished(held.batch.id, (line.number for line in portion))
        missing = (parse_line(line.content) for line in portion if line.number not in known)
        yield _joined(output_line(line["custom_id"], None, _EXPIRED) for line in missing)


def _joined(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
