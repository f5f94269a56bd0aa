"""/v1/conversations, as in OpenAI's API."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from loragate.adapter_store.database.page import DEFAULT_LIMIT, MAX_LIMIT
from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import By, Inference
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.inference.stored_responses import Conversation, ConversationDeleted, Item, ItemList
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import conversations as actions
from loragate.gateway.schemas.inference.conversations import ConversationCreate, ConversationUpdate, ItemsCreate

router = APIRouter(prefix="/v1/conversations", tags=["responses"])

Include = Annotated[list[str] | None, Query(max_length=16, description="Accepted, without effect.")]


@router.post("")
@describes(Conversation, errors=(409,))
async def create_conversation(
    caller: Inference,
    by: By,
    body: Annotated[ConversationCreate, Depends(JsonBody(ConversationCreate, optional=True))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Create a conversation. Responses with its id as `conversation` read its items and add theirs."""
    return (await actions.create(use, caller, by, body, once)).response()


@router.get("/{conversation_id}")
@describes(Conversation)
async def get_conversation(conversation_id: str, caller: Inference, use: Use) -> Response:
    """Get a conversation."""
    return json_response(await actions.get(use, caller, conversation_id))


@router.post("/{conversation_id}")
@describes(Conversation, errors=(409,))
async def update_conversation(
    conversation_id: str,
    caller: Inference,
    by: By,
    body: Annotated[ConversationUpdate, Depends(JsonBody(ConversationUpdate))],
    use: Use,
) -> Response:
    """Replace the metadata of a conversation."""
    return json_response(await actions.update(use, caller, by, conversation_id, body))


@router.delete("/{conversation_id}")
@describes(ConversationDeleted)
async def delete_conversation(conversation_id: str, caller: Inference, by: By, use: Use) -> Response:
    """Delete a conversation with its items. Responses that used it stay."""
    await actions.delete(use, caller, by, conversation_id)
    deleted: ConversationDeleted = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
    return json_response(deleted)


@router.post("/{conversation_id}/items")
@describes(ItemList, errors=(409,))
async def create_conversation_items(
    conversation_id: str,
    caller: Inference,
    by: By,
    body: Annotated[ItemsCreate, Depends(JsonBody(ItemsCreate))],
    use: Use,
    include: Include = None,
) -> Response:
    """Add up to 20 items at the end of a conversation."""
    return json_response(await actions.add_items(use, caller, by, conversation_id, body))


@router.get("/{conversation_id}/items")
@describes(ItemList)
async def list_conversation_items(
    conversation_id: str,
    caller: Inference,
    use: Use,
    after: Annotated[str | None, Query(max_length=256)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
    order: Literal["asc", "desc"] = "desc",
    include: Include = None,
) -> Response:
    """List the items of a conversation: the last one first unless `order` is `asc`."""
    page = await actions.list_items(use, caller, conversation_id, after, limit, ascending=order == "asc")
    return json_response(page)


@router.get("/{conversation_id}/items/{item_id}")
@describes(Item)
async def get_conversation_item(
    conversation_id: str, item_id: str, caller: Inference, use: Use, include: Include = None
) -> Response:
    """Get an item of a conversation."""
    return json_response(await actions.get_item(use, caller, conversation_id, item_id))


@router.delete("/{conversation_id}/items/{item_id}")
@describes(Conversation)
async def delete_conversation_item(conversation_id: str, item_id: str, caller: Inference, by: By, use: Use) -> Response:
    """Delete an item of a conversation. Responds with the conversation."""
    return json_response(await actions.delete_item(use, caller, by, conversation_id, item_id))
