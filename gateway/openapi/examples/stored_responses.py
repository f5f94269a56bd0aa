"""Example responses about stored responses and conversations."""

from collections.abc import Mapping
from typing import Any

from loragate.gateway.objects.inference import stored_responses as stored
from loragate.gateway.openapi.examples.requests import NAME

_CREATED = 1_772_357_400
_RESPONSE = "resp_5d41402abc4b2a76b9719d911017c592"
_TALK = "conv_7hJk3mNp5qRs1tUv9wXy2zAb4cDe6fGh"
_ITEM = {
    "id": "msg_7d793037a0760186574b0282f2f435e7",
    "type": "message",
    "status": "completed",
    "role": "user",
    "content": [{"type": "input_text", "text": "Write a line about the sea."}],
}
_SUMMARY = {
    "id": _RESPONSE,
    "object": "response.summary",
    "created_at": _CREATED,
    "completed_at": _CREATED + 1,
    "expires_at": _CREATED + 2_592_000,
    "model": NAME,
    "status": "completed",
    "background": False,
    "previous_response_id": None,
    "conversation_id": _TALK,
    "bytes": 1860,
}


def _page(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [item], "has_more": False, "first_id": item["id"], "last_id": item["id"]}


STORED: Mapping[Any, Any] = {
    stored.Item: _ITEM,
    stored.ItemList: _page(_ITEM),
    stored.ResponseSummaryList: _page(_SUMMARY),
    stored.InputTokens: {"object": "response.input_tokens", "input_tokens": 21},
    stored.ResponseDeleted: {"id": _RESPONSE, "object": "response", "deleted": True},
    stored.Conversation: {
        "id": _TALK,
        "object": "conversation",
        "created_at": _CREATED,
        "metadata": {"topic": "the sea"},
    },
    stored.ConversationDeleted: {"id": _TALK, "object": "conversation.deleted", "deleted": True},
    stored.ResponseStore: {
        "object": "response_store",
        "enabled": True,
        "store_by_default": False,
        "retention_days": 30.0,
        "responses": 12,
        "conversations": 1,
        "bytes": 24_310,
    },
    stored.DeletedOfUser: {"object": "response_store.deleted", "deleted": 3},
}
