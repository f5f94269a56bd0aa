"""Operations on a tenant's stored responses."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Literal

import orjson

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.database.page import cut_page
from loragate.adapter_store.responses.response import Conversation, Json, StoredResponse
from loragate.adapter_store.scopes import TenantScope
from loragate.gateway.errors import InvalidRequest, TooManyRequests
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.inference.stored_responses import (
    ItemList,
    ResponseStore,
    ResponseSummaryList,
    conversation_object,
    item_object,
    response_store_object,
    summary_object,
)
from loragate.gateway.resilience.fair_places import NoPlace
from loragate.gateway.services import Services

_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.1, 1.0
_EXPORTED = 50  # responses read at a time
EndUserKind = Literal["user", "safety_identifier"]


async def get(use: Services, caller: TenantPrincipal, response_id: str) -> StoredResponse:
    """Return a stored response."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return await scope.responses.get(response_id)


async def list_responses(use: Services, caller: TenantPrincipal, after: str | None, limit: int) -> ResponseSummaryList:
    """Return a page of responses without their content, newest first."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.responses.list(after=after, limit=limit)
    return list_object([summary_object(each) for each in page], has_more=page.has_more)


async def input_items(
    use: Services, caller: TenantPrincipal, response_id: str, after: str | None, limit: int, *, ascending: bool
) -> ItemList:
    """Return a page of the items that a response was generated from."""
    async with use.store.tenant(caller.tenant_id) as scope:
        items = list(await scope.responses.input_items(response_id))
    if not ascending:
        items.reverse()
    if after is not None:
        at = next((index for index, item in enumerate(items) if item["id"] == after), None)
        if at is None:
            raise InvalidRequest("Invalid 'after': it is not the id of an item of this list.", param="after")
        items = items[at + 1 :]
    page = cut_page(items[: limit + 1], limit)
    return list_object([item_object(item) for item in page], has_more=page.has_more)


async def delete(use: Services, caller: TenantPrincipal, by: Actor, response_id: str) -> None:
    """Delete a response, and the items that it added to a conversation."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.responses.delete(response_id)
    use.responses.wake()


async def delete_of_user(use: Services, caller: TenantPrincipal, by: Actor, kind: EndUserKind, name: str) -> int:
    """Delete what is stored of the tenant's user of this name; return how many responses and items that were."""
    deleted = 0
    while True:
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            some = await scope.responses.delete_some_of(kind, name)
        if not some:
            break
        deleted += some
    use.responses.wake()
    return deleted


async def cancel(use: Services, caller: TenantPrincipal, by: Actor, response_id: str) -> StoredResponse:
    """Cancel a response that runs in the background."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        stored = await scope.responses.cancel(response_id)
    use.responses.wake()
    return stored


async def store_of(use: Services, caller: TenantPrincipal) -> ResponseStore:
    """Return what the tenant stores, and its setting."""
    async with use.store.tenant(caller.tenant_id) as scope:
        used = await scope.responses.use()
    async with use.store.admin(within=caller.tenant_id) as admin:
        tenant = await admin.tenants.get(caller.tenant_id)
    return response_store_object(use.config.responses, tenant, used)


async def set_default(use: Services, caller: TenantPrincipal, by: Actor, *, store_by_default: bool) -> ResponseStore:
    """Set whether responses are stored of requests that do not say so."""
    async with use.store.admin(write=True, by=by, within=caller.tenant_id) as admin:
        await admin.tenants.update(caller.tenant_id, store_responses_by_default=store_by_default)
    return await store_of(use, caller)


async def events(use: Services, tenant_id: str, response_id: str, after: int) -> AsyncGenerator[Json, None]:
    """Yield the events of a streamed response behind the one with number `after`, as they are stored, until its end.
    They end early if it is cancelled or deleted."""
    with _follower(use, tenant_id):
        wait = _POLL_SECONDS
        while True:
            async with use.store.tenant(tenant_id) as scope:
                status = await scope.responses.status(response_id)
                found = [] if status is None else await scope.responses.events(response_id, after)
            for event in found:
                after = event["sequence_number"]
                yield event
            if not found and (status is None or status.ended):
                return
            wait = _POLL_SECONDS if found else min(_LONGEST_POLL_SECONDS, 1.5 * wait)
            await asyncio.sleep(wait)


@contextmanager
def _follower(use: Services, tenant_id: str) -> Iterator[None]:
    """Hold a place of those that follow something. Raise TooManyRequests."""
    try:
        with use.event_followers.hold(tenant_id):
            yield
    except NoPlace:
        message = "This tenant follows as many streams as it may at a time; end another one first."
        raise TooManyRequests(message, code="too_many_streams") from None


async def export(use: Services, caller: TenantPrincipal) -> AsyncIterator[bytes]:
    """Yield a line of JSON for each stored response and each conversation, oldest first."""
    async for line in _responses(use, caller):
        yield line
    async for line in _conversations(use, caller):
        yield line


async def _responses(use: Services, caller: TenantPrincipal) -> AsyncIterator[bytes]:
    after: tuple[datetime, str] | None = None
    while True:
        async with use.store.tenant(caller.tenant_id) as scope:
            entries = await scope.responses.export(after, _EXPORTED)
        for entry in entries:
            after = entry.response.created_at, entry.response.id
            document = {
                "object": "response.export",
                "response": entry.response.document,
                "input": entry.request.items,
                "request": entry.request.request,
            }
            yield orjson.dumps(document) + b"\n"
        if len(entries) < _EXPORTED:
            return


async def _conversations(use: Services, caller: TenantPrincipal) -> AsyncIterator[bytes]:
    after: tuple[datetime, str] | None = None
    while True:
        async with use.store.tenant(caller.tenant_id) as scope:
            talks = await scope.conversations.export(after, _EXPORTED)
            lines = [await _line(scope, talk) for talk in talks]
        for talk, line in zip(talks, lines, strict=True):
            after = talk.created_at, talk.id
            yield line
        if len(talks) < _EXPORTED:
            return


async def _line(scope: TenantScope, talk: Conversation) -> bytes:
    items = await scope.conversations.exported_items(talk.id)
    document = {"object": "conversation.export", "conversation": conversation_object(talk), "items": items}
    return orjson.dumps(document) + b"\n"
