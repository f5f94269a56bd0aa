"""Adapters out of files that came before: what is large comes in parts, and a dropped connection costs one of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.files.file import File, Purpose
from loragate.gateway.errors import InvalidRequest
from loragate.gateway.operations.files import content
from loragate.gateway.schemas.resources.adapters import AdapterFromFiles
from loragate.gateway.services import Services
from loragate.gateway.uploads.adapter_upload import MAX_CONFIG_BYTES, AdapterUpload
from loragate.gateway.uploads.spool_space import UploadSpace


@asynccontextmanager
async def from_files(
    use: Services, caller: TenantPrincipal, body: AdapterFromFiles, space: UploadSpace
) -> AsyncIterator[AdapterUpload]:
    """Yield the files as an upload. Raise NotFound, InvalidRequest, Conflict, StorageFull or Unavailable."""
    config = await _config(use, caller, body)
    file, chunks = await _adapter_file(use, caller, body.tensors_file_id, "tensors_file_id")
    space.expect(file.size_bytes)
    async with space.file() as tensors:
        async for chunk in chunks:
            await space.write(tensors, chunk)
        space.received()
        tags = None if body.tags is None else tuple(body.tags)
        signature = None if body.signature is None else body.signature.encode()
        yield AdapterUpload(body.name, body.alias, tags, body.description, config, tensors, body.lineage(), signature)


async def _config(use: Services, caller: TenantPrincipal, body: AdapterFromFiles) -> bytes:
    if body.config_file_id is None:
        return (body.adapter_config or "").encode()
    file, chunks = await _adapter_file(use, caller, body.config_file_id, "config_file_id")
    if file.size_bytes > MAX_CONFIG_BYTES:
        words = f"Invalid 'config_file_id': the file is larger than {MAX_CONFIG_BYTES} bytes."
        raise InvalidRequest(words, param="config_file_id", code="invalid_value")
    return b"".join([chunk async for chunk in chunks])


async def _adapter_file(
    use: Services, caller: TenantPrincipal, file_id: str, param: str
) -> tuple[File, AsyncIterator[bytes]]:
    file, chunks = await content(use, caller, file_id, param=param)
    if file.purpose is not Purpose.ADAPTER:
        words = f"Invalid '{param}': the file's purpose is '{file.purpose}', not 'adapter'."
        raise InvalidRequest(words, param=param, code="invalid_value")
    return file, chunks
