"""Stored responses and conversations, as repositories return them. Items and objects are JSON in OpenAI's shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]

MAX_CHAIN = 256  # responses that continue each other
MAX_REFERENCES = 256  # to stored items, in one request
MAX_CONVERSATION_ITEMS = 4096
MAX_CONTEXT_BYTES = 4 << 20  # of the responses, or of the conversation, that a request continues
MAX_UNFINISHED = 128  # background responses of one tenant that wait or run
MAX_ATTEMPTS = 5  # at a background response, by processes that died of it or beside it


class ResponseStatus(StrEnum):
    """OpenAI's states of a response."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """The state is final."""
        return self not in UNFINISHED


UNFINISHED = (ResponseStatus.QUEUED, ResponseStatus.IN_PROGRESS)


@dataclass(frozen=True)
class EndUser:
    """Whose data it is, as the tenant names its own users."""

    user: str | None = None
    safety_identifier: str | None = None


@dataclass(frozen=True)
class NewResponse:
    """A response to store. `items` are those of the request's own input, each with an id; `request` has the other
    fields of the request. `lifetime` is None for a response that stays until it is deleted."""

    id: str
    key_id: str
    model: str
    status: ResponseStatus
    items: Sequence[Json] = field(repr=False)
    request: Json = field(repr=False)
    document: Json = field(repr=False)
    end_user: EndUser = field(default=EndUser(), repr=False)
    previous_id: str | None = None
    conversation_id: str | None = None
    background: bool = False
    streamed: bool = False
    lifetime: timedelta | None = None


@dataclass(frozen=True)
class ResponseSummary:
    """What is known of a stored response without its content."""

    id: str
    model: str
    status: ResponseStatus
    background: bool
    streamed: bool
    previous_id: str | None
    conversation_id: str | None
    size_bytes: int
    created_at: datetime
    finished_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True)
class StoredResponse(ResponseSummary):
    """A stored response with the response object."""

    document: Json = field(repr=False)


@dataclass(frozen=True)
class StoredRequest:
    """The request of a stored response."""

    items: Sequence[Json] = field(repr=False)
    request: Json = field(repr=False)


@dataclass(frozen=True)
class StoredEntry:
    """A response with its request, as an export has it."""

    response: StoredResponse
    request: StoredRequest


@dataclass(frozen=True)
class Conversation:
    """A conversation."""

    id: str
    metadata: Mapping[str, str] = field(repr=False)
    created_at: datetime
    expires_at: datetime | None
    size_bytes: int


@dataclass(frozen=True)
class AddedItems:
    """Items to add to a conversation, and where they come from."""

    items: Sequence[Json] = field(repr=False)
    response_id: str | None = None
    end_user: EndUser = field(default=EndUser(), repr=False)


@dataclass(frozen=True)
class StorageUse:
    """What a tenant stores of responses and conversations."""

    responses: int
    conversations: int
    size_bytes: int
