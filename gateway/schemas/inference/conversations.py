"""Bodies of /v1/conversations and of the tenant's settings of its stored responses."""

from typing import Annotated

from pydantic import Field

from loragate.gateway.schemas.inference.response_items import InputItem
from loragate.gateway.schemas.inference.responses import Metadata
from loragate.prompts.bodies import Body, ClientBody

MAX_ADDED = 20  # items of one request, as in OpenAI's API
Items = Annotated[list[InputItem], Field(max_length=MAX_ADDED)]


class ConversationCreate(ClientBody):
    """Body of POST /v1/conversations."""

    items: Items | None = None
    metadata: Metadata | None = None


class ConversationUpdate(ClientBody):
    """Body of POST /v1/conversations/{conversation_id}. The metadata is replaced."""

    metadata: Metadata


class ItemsCreate(ClientBody):
    """Body of POST /v1/conversations/{conversation_id}/items."""

    items: Annotated[list[InputItem], Field(min_length=1, max_length=MAX_ADDED)]


class ResponseStorePatch(Body):
    """Body of PATCH /v1/response_store."""

    store_by_default: bool
