"""Merged exports: the base model with a version's weights in it, streamed from an engine."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from loragate.adapter_store.adapters.adapter import AdapterVersion, VersionStatus
from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.engine.client.errors import EngineRequestError, EngineUnavailable
from loragate.engine.fleet.member import Member
from loragate.gateway.errors import ApiError, InvalidRequest, NotFound, TooManyRequests, Unavailable
from loragate.gateway.resilience.fair_places import NoPlace
from loragate.gateway.services import Services
from loragate.v1 import engine_pb2 as pb

_RETRY_SECONDS = 60.0  # after which another export may have ended


@dataclass(frozen=True, slots=True)
class MergedExport:
    """A running export: the archive's size in bytes, and its parts."""

    size: int
    parts: AsyncIterator[bytes]


@asynccontextmanager
async def merged_export(
    use: Services, caller: TenantPrincipal, by: Actor, name: str, version: int
) -> AsyncIterator[MergedExport]:
    """Export a version merged into the base model, until the block ends. A tenant runs one export at a time.

    Raise ApiError.
    """
    async with _begun(use, caller, name, version) as (found, size, parts):
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            await scope.adapters.record_export(found)
        yield MergedExport(size, (part.data async for part in parts))


async def merged_size(use: Services, caller: TenantPrincipal, name: str, version: int) -> int:
    """Return the size in bytes of a version's export, which could begin now. Raise the ApiError that it would raise."""
    async with _begun(use, caller, name, version, size_only=True) as (_, size, parts):
        await anext(parts, None)  # the end: from then on the engine is free for the export
        return size


@asynccontextmanager
async def _begun(
    use: Services, caller: TenantPrincipal, name: str, version: int, *, size_only: bool = False
) -> AsyncIterator[tuple[AdapterVersion, int, AsyncGenerator[pb.ExportPart]]]:
    """Begin an export, and yield its version, size and parts. Raise ApiError."""
    if not use.config.merged_exports:
        raise NotFound("This installation does not export merged models.", code="exports_disabled")
    found = await _exportable(use, caller, name, version)
    try:
        with use.exports.hold(caller.tenant_id):
            first, parts = await _begin(use, caller, found, size_only=size_only)
            async with aclosing(parts):
                yield found, first.size_bytes, parts
    except NoPlace:
        raise TooManyRequests(
            "Another export of this tenant is running.", code="export_running", retry_after=_RETRY_SECONDS
        ) from None


async def _exportable(use: Services, caller: TenantPrincipal, name: str, version: int) -> AdapterVersion:
    """Return the version. Raise an error unless its files can be downloaded."""
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.adapters.version(name, version)
    try:
        if found.status is VersionStatus.QUARANTINED:
            raise OSError("its bytes are corrupt")
        await use.store.open_adapter(caller.tenant_id, found.digest)
    except (LookupError, OSError):
        raise _unreadable() from None
    return found


async def _begin(
    use: Services, caller: TenantPrincipal, found: AdapterVersion, *, size_only: bool
) -> tuple[pb.ExportPart, AsyncGenerator[pb.ExportPart]]:
    """Return the first part of the first engine that exports, and the iterator of the others. Raise ApiError."""
    adapter = pb.AdapterRef(tenant_id=caller.tenant_id, digest=found.digest)
    error: ApiError = Unavailable(
        "No engine with the base model of this version is available at the moment.", code="engine_unavailable"
    )
    for member in _engines(use, caller, found):
        parts = member.client.export_merged(adapter, found.base_digest, size_only=size_only)
        try:
            return await anext(parts), parts
        except EngineRequestError as rejection:
            error = _error_from(rejection)
            if rejection.code == pb.ERROR_CODE_INVALID_REQUEST:
                break
        except (EngineUnavailable, StopAsyncIteration):
            continue
    raise error


def _engines(use: Services, caller: TenantPrincipal, found: AdapterVersion) -> list[Member]:
    """Return the engines that serve the version's base model, those that hold the version first."""
    ready = [each for each in use.link.fleet.ready_members if each.manifest is not None]
    fitting = [each for each in ready if each.manifest is not None and each.manifest.base_digest == found.base_digest]
    return sorted(fitting, key=lambda each: (caller.tenant_id, found.digest) not in each.held)


def _error_from(rejection: EngineRequestError) -> ApiError:
    if rejection.code == pb.ERROR_CODE_INVALID_REQUEST:
        return InvalidRequest(rejection.message, param="version", code="cannot_merge")
    if rejection.code == pb.ERROR_CODE_OVERLOADED:
        return Unavailable("Every engine runs an export already.", code="export_running", retry_after=_RETRY_SECONDS)
    return _unreadable()


def _unreadable() -> Unavailable:
    return Unavailable("The adapter's files cannot be read at the moment.", code="adapter_unavailable")
