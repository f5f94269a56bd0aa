"""Operations on a tenant's files and their uploads, for REST and gRPC."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import BinaryIO

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.file_digest import sha256_digest
from loragate.adapter_store.files.file import File, FileFacts, Purpose
from loragate.adapter_store.quotas import Room
from loragate.gateway.auth.authenticator import require_scope
from loragate.gateway.errors import InvalidRequest, PayloadTooLarge
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects import files as objects
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.files import deleted_file, file_object, part_object, upload_object
from loragate.gateway.schemas.resources.uploads import UploadComplete, UploadCreate
from loragate.gateway.services import Services
from loragate.gateway.uploads.spool_space import UploadSpace
from loragate.gateway.uploads.training_lines import check_lines

_SCOPES = {
    Purpose.FINE_TUNE: Scope.FINETUNE,
    Purpose.FINE_TUNE_RESULTS: Scope.FINETUNE,
    Purpose.ADAPTER: Scope.ADAPTERS_WRITE,
    Purpose.BATCH: Scope.INFERENCE,
    Purpose.BATCH_OUTPUT: Scope.INFERENCE,
}
_MAX_FINE_TUNE_BYTES = 1 << 30
_LISTED_AT_ONCE = 250


def purposes_of(caller: TenantPrincipal) -> frozenset[Purpose]:
    """Return the purposes whose files the caller's key may access."""
    return frozenset(purpose for purpose, scope in _SCOPES.items() if caller.allows(scope))


@asynccontextmanager
async def upload_space(use: Services, caller: TenantPrincipal, announced: int = 0) -> AsyncIterator[UploadSpace]:
    """Take a place among the tenant's uploads, and space for `announced` bytes or more within its quota.

    Raise TooManyRequests, Conflict (`quota_exceeded`).
    """
    async with use.store.tenant(caller.tenant_id) as scope:
        room = await scope.files.room()
    with (
        use.upload_limiter.acquire(caller.tenant_id),
        use.spool_space.open(caller.tenant_id, room, announced) as space,
    ):
        yield space


async def create(
    use: Services, caller: TenantPrincipal, by: Actor, facts: FileFacts, content: BinaryIO, once: Once
) -> Result[objects.File]:
    """Create a file from one request."""
    require_scope(caller, _SCOPES[facts.purpose])
    size = content.seek(0, 2)
    async with once.attempt(caller.tenant_id, *await _identity(use, caller, once, content, repr(facts))) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        format = None
        if facts.open:
            format = await check_lines(use.file_threads, caller.tenant_id, content, size, None, "file")
        size = content.seek(0, 2)
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            file = await scope.files.create(facts, content, size, format)
            return await attempt.keep(scope.idempotency, file_object(file), 200)


async def append(
    use: Services, caller: TenantPrincipal, by: Actor, file_id: str, content: BinaryIO, once: Once
) -> Result[objects.File]:
    """Append lines to an open file: all of them or, if one is invalid, none."""
    size = content.seek(0, 2)
    purposes = purposes_of(caller)
    async with once.attempt(caller.tenant_id, *await _identity(use, caller, once, content, file_id)) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id) as scope:
            file = await scope.files.require_open(file_id, purposes, size)
        format = await check_lines(use.file_threads, caller.tenant_id, content, size, file.format, "data")
        if format is None:
            raise InvalidRequest("Invalid 'data': there are no lines in it.", param="data", code="invalid_lines")
        size = content.seek(0, 2)
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            file = await scope.files.append(file_id, purposes, content, size, format)
            return await attempt.keep(scope.idempotency, file_object(file), 200)


async def close(use: Services, caller: TenantPrincipal, by: Actor, file_id: str) -> objects.File:
    """Close an open file for good. Returns a closed one as it is."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return file_object(await scope.files.close(file_id, purposes_of(caller)))


async def list_files(
    use: Services, caller: TenantPrincipal, purpose: str | None, after: str | None, limit: int, *, oldest: bool
) -> objects.FileList:
    """Return a page of the files that the caller's key may access. It is read in portions, between which the event loop
    serves others: ten thousand rows take it half a second."""
    wanted = [each for each in purposes_of(caller) if purpose in (None, each.value)]
    listed: list[objects.File] = []
    has_more = True
    async with use.store.tenant(caller.tenant_id) as scope:
        while has_more and len(listed) < limit:
            portion = min(limit - len(listed), _LISTED_AT_ONCE)
            last = listed[-1]["id"] if listed else after
            page = await scope.files.list(wanted, after=last, limit=portion, oldest=oldest)
            listed += [file_object(file) for file in page]
            has_more = page.has_more
    return list_object(listed, has_more=has_more)


async def get(use: Services, caller: TenantPrincipal, file_id: str) -> objects.File:
    """Return a file."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return file_object(await scope.files.get(file_id, purposes_of(caller)))


async def content(
    use: Services, caller: TenantPrincipal, file_id: str, *, param: str = "file_id"
) -> tuple[File, AsyncIterator[bytes]]:
    """Return a file and its bytes. Raise NotFound, and Unavailable while iterating."""
    async with use.store.tenant(caller.tenant_id) as scope:
        file = await scope.files.get(file_id, purposes_of(caller), param=param)
        pieces = await scope.files.pieces_of(file)
    return file, use.store.read_pieces(caller.tenant_id, pieces)


async def delete(use: Services, caller: TenantPrincipal, by: Actor, file_id: str) -> objects.DeletedFile:
    """Delete a file. Reads in progress complete normally."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.files.delete(file_id, purposes_of(caller))
    return deleted_file(file_id)


async def create_upload(
    use: Services, caller: TenantPrincipal, by: Actor, body: UploadCreate, once: Once
) -> Result[objects.Upload]:
    """Create an upload, for a file that is sent in parts."""
    purpose = Purpose(body.purpose)
    require_scope(caller, _SCOPES[purpose])
    max_bytes = use.config.max_upload_bytes
    if purpose is Purpose.FINE_TUNE:
        max_bytes = min(max_bytes, _MAX_FINE_TUNE_BYTES)
    if body.bytes > max_bytes:
        raise PayloadTooLarge(f"A file for the purpose '{purpose}' may have {max_bytes} bytes.", param="bytes")
    seconds = None if body.expires_after is None else body.expires_after.seconds
    facts = FileFacts(body.filename, purpose, seconds)
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            upload = await scope.file_uploads.create(facts, body.mime_type, body.bytes)
            return await attempt.keep(scope.idempotency, upload_object(upload), 200)


async def get_upload(use: Services, caller: TenantPrincipal, upload_id: str) -> objects.Upload:
    """Return an upload."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return upload_object(await scope.file_uploads.get(upload_id, purposes_of(caller)))


@asynccontextmanager
async def part_space(use: Services, caller: TenantPrincipal, upload_id: str) -> AsyncIterator[UploadSpace]:
    """Take a place among the tenant's uploads for a part. Its bytes are within the upload's, which count already.

    Raise NotFound, Conflict, TooManyRequests.
    """
    async with use.store.tenant(caller.tenant_id) as scope:
        await scope.file_uploads.check_part(upload_id, purposes_of(caller), 0)
    with use.upload_limiter.acquire(caller.tenant_id), use.spool_space.open(caller.tenant_id, Room()) as space:
        yield space


async def add_part(
    use: Services, caller: TenantPrincipal, by: Actor, upload_id: str, content: BinaryIO, once: Once
) -> Result[objects.UploadPart]:
    """Add a part. Parts may be added in any order; the same bytes sent twice are two parts."""
    size = content.seek(0, 2)
    async with once.attempt(caller.tenant_id, *await _identity(use, caller, once, content, upload_id)) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            part = await scope.file_uploads.add_part(upload_id, purposes_of(caller), content, size)
            return await attempt.keep(scope.idempotency, part_object(part), 200)


async def list_parts(use: Services, caller: TenantPrincipal, upload_id: str) -> objects.UploadPartList:
    """Return the parts received so far, so that a client can resume an upload."""
    async with use.store.tenant(caller.tenant_id) as scope:
        parts = await scope.file_uploads.parts(upload_id, purposes_of(caller))
    return list_object([part_object(part) for part in parts])


async def complete_upload(
    use: Services, caller: TenantPrincipal, by: Actor, upload_id: str, body: UploadComplete
) -> objects.Upload:
    """Create the file from these parts. Repeating the call returns the same file."""
    if body.md5 is not None:
        async with use.store.tenant(caller.tenant_id) as scope:
            await scope.file_uploads.check_completion(upload_id, purposes_of(caller), body.part_ids)
        if body.md5.lower() != await _md5(use, caller.tenant_id, body.part_ids):
            words = "The MD5 sum of these parts is different; the upload is still pending."
            raise InvalidRequest(words, param="md5", code="md5_mismatch")
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return upload_object(await scope.file_uploads.complete(upload_id, purposes_of(caller), body.part_ids))


async def cancel_upload(use: Services, caller: TenantPrincipal, by: Actor, upload_id: str) -> objects.Upload:
    """Cancel an upload and delete its parts."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return upload_object(await scope.file_uploads.cancel(upload_id, purposes_of(caller)))


async def _md5(use: Services, tenant_id: str, part_ids: Sequence[str]) -> str:
    """Return the MD5 sum of these parts, of at most `max_upload_bytes`. A tenant has one computed at a time."""
    digest = hashlib.md5(usedforsecurity=False)
    async with use.upload_limiter.digest_lock(tenant_id):
        async for chunk in use.store.read_pieces(tenant_id, part_ids):
            await use.file_threads.run(tenant_id, partial(digest.update, chunk))
    return digest.hexdigest()


async def _identity(
    use: Services, caller: TenantPrincipal, once: Once, content: BinaryIO, what: str
) -> tuple[bytes, ...]:
    if once.key is None:
        return ()
    digest = await use.file_threads.run(caller.tenant_id, partial(sha256_digest, content))
    return what.encode(errors="surrogatepass"), digest
