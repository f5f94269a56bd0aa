"""Stored responses and conversations, in OpenAI's shapes, and what this server adds to them."""

from typing import Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from loragate.adapter_store.responses.response import Conversation as StoredConversation
from loragate.adapter_store.responses.response import Json, StorageUse
from loragate.adapter_store.responses.response import ResponseSummary as StoredSummary
from loragate.adapter_store.tenants.tenant import Tenant
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.objects.common import Count, Page, unix_seconds
from loragate.gateway.objects.inference.responses import ItemStatus, ResponseStatus


class Item(TypedDict):
    """An item of a conversation: a message, a call or its result, or reasoning. The fields depend on its `type`."""

    id: str
    type: Literal[
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
    ]
    status: ItemStatus
    role: NotRequired[Literal["user", "assistant", "system", "developer"]]
    content: NotRequired[list[dict[str, Any]]]
    summary: NotRequired[list[dict[str, Any]]]
    encrypted_content: NotRequired[None]
    call_id: NotRequired[str]
    name: NotRequired[str]
    namespace: NotRequired[str]
    arguments: NotRequired[str]
    input: NotRequired[str]
    output: NotRequired[str]


class ItemList(Page):
    """Items of a conversation."""

    data: list[Item]


class ResponseSummary(TypedDict):
    """A stored response without its content."""

    id: str
    object: Literal["response.summary"]
    created_at: Count
    completed_at: Count | None
    expires_at: Count | None
    model: str
    status: ResponseStatus
    background: bool
    previous_response_id: str | None
    conversation_id: str | None
    bytes: Count


class ResponseSummaryList(Page):
    """Newest first."""

    data: list[ResponseSummary]


class InputTokens(TypedDict):
    """The number of tokens of a request's input."""

    object: Literal["response.input_tokens"]
    input_tokens: Count


class ResponseDeleted(TypedDict):
    """The confirmation that a response is deleted."""

    id: str
    object: Literal["response"]
    deleted: bool


class Conversation(TypedDict):
    """A conversation."""

    id: str
    object: Literal["conversation"]
    created_at: Count
    metadata: dict[str, str]


class ConversationDeleted(TypedDict):
    """The confirmation that a conversation is deleted."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: bool


class ResponseStore(TypedDict):
    """What the tenant stores, and whether responses are stored of requests without `store`. `enabled` is the server's
    setting; without it, nothing new is stored. `retention_days` is null if nothing expires."""

    object: Literal["response_store"]
    enabled: bool
    store_by_default: bool
    retention_days: float | None
    responses: Count
    conversations: Count
    bytes: Count


class DeletedOfUser(TypedDict):
    """The number of responses, and of items of conversations of others, that were deleted."""

    object: Literal["response_store.deleted"]
    deleted: Count


def item_object(item: Json) -> Item:
    """Return a stored item."""
    return cast(Item, dict(item))


def summary_object(summary: StoredSummary) -> ResponseSummary:
    """Return a response without its content."""
    return {
        "id": summary.id,
        "object": "response.summary",
        "created_at": unix_seconds(summary.created_at),
        "completed_at": unix_seconds(summary.finished_at),
        "expires_at": unix_seconds(summary.expires_at),
        "model": summary.model,
        "status": summary.status.value,
        "background": summary.background,
        "previous_response_id": summary.previous_id,
        "conversation_id": summary.conversation_id,
        "bytes": summary.size_bytes,
    }


def conversation_object(conversation: StoredConversation) -> Conversation:
    """Return a conversation."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": unix_seconds(conversation.created_at),
        "metadata": dict(conversation.metadata),
    }


def response_store_object(config: ResponsesConfig, tenant: Tenant, used: StorageUse) -> ResponseStore:
    """Return what a tenant stores."""
    return {
        "object": "response_store",
        "enabled": config.store,
        "store_by_default": tenant.store_responses_by_default,
        "retention_days": config.retention_days or None,
        "responses": used.responses,
        "conversations": used.conversations,
        "bytes": used.size_bytes,
    }
