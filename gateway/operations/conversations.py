"""Operations on a tenant's conversations."""

from loragate.adapter_store.audit.actor import Actor
from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.responses.response import AddedItems
from loragate.gateway.http.idempotency import Once, Result
from loragate.gateway.objects.common import list_object
from loragate.gateway.objects.inference.input_items import stored_items
from loragate.gateway.objects.inference.stored_responses import (
    Conversation,
    Item,
    ItemList,
    conversation_object,
    item_object,
)
from loragate.gateway.operations.responses import require_store
from loragate.gateway.schemas.inference.conversations import ConversationCreate, ConversationUpdate, ItemsCreate
from loragate.gateway.services import Services


async def create(
    use: Services, caller: TenantPrincipal, by: Actor, body: ConversationCreate, once: Once
) -> Result[Conversation]:
    """Create a conversation."""
    require_store(use.config.responses, "conversation")
    async with once.attempt(caller.tenant_id, body.model_dump_json().encode()) as attempt:
        if attempt.earlier is not None:
            return attempt.earlier
        async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
            items, lifetime = stored_items(body.items or ()), use.config.responses.lifetime
            made = await scope.conversations.create(body.metadata or {}, items, lifetime)
            return await attempt.keep(scope.idempotency, conversation_object(made), 200)


async def get(use: Services, caller: TenantPrincipal, conversation_id: str) -> Conversation:
    """Return a conversation."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return conversation_object(await scope.conversations.get(conversation_id))


async def update(
    use: Services, caller: TenantPrincipal, by: Actor, conversation_id: str, body: ConversationUpdate
) -> Conversation:
    """Replace the metadata of a conversation."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return conversation_object(await scope.conversations.update(conversation_id, body.metadata))


async def delete(use: Services, caller: TenantPrincipal, by: Actor, conversation_id: str) -> None:
    """Delete a conversation with its items."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.conversations.delete(conversation_id)


async def add_items(
    use: Services, caller: TenantPrincipal, by: Actor, conversation_id: str, body: ItemsCreate
) -> ItemList:
    """Add items at the end; return them."""
    items = stored_items(body.items)
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        await scope.conversations.get(conversation_id)
        require_store(use.config.responses, "items")
        await scope.conversations.add(conversation_id, AddedItems(items), use.config.responses.lifetime)
    return list_object([item_object(item) for item in items])


async def list_items(
    use: Services, caller: TenantPrincipal, conversation_id: str, after: str | None, limit: int, *, ascending: bool
) -> ItemList:
    """Return a page of items."""
    async with use.store.tenant(caller.tenant_id) as scope:
        page = await scope.conversations.items(conversation_id, after=after, limit=limit, ascending=ascending)
    return list_object([item_object(item) for item in page], has_more=page.has_more)


async def get_item(use: Services, caller: TenantPrincipal, conversation_id: str, item_id: str) -> Item:
    """Return an item."""
    async with use.store.tenant(caller.tenant_id) as scope:
        return item_object(await scope.conversations.item(conversation_id, item_id))


async def delete_item(
    use: Services, caller: TenantPrincipal, by: Actor, conversation_id: str, item_id: str
) -> Conversation:
    """Delete an item; return its conversation."""
    async with use.store.tenant(caller.tenant_id, write=True, by=by) as scope:
        return conversation_object(await scope.conversations.delete_item(conversation_id, item_id))
