"""Requests for responses with what is stored of the conversation, and the storage of their results."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.responses.response import AddedItems, EndUser, Json, NewResponse, ResponseStatus
from loragate.adapter_store.scopes import TenantScope
from loragate.gateway.config.responses import ResponsesConfig
from loragate.gateway.errors import InvalidRequest, Unavailable
from loragate.gateway.objects.inference.input_items import stored_items
from loragate.gateway.objects.inference.response_item import ResponseEvent
from loragate.gateway.objects.inference.responses import ResponseHead, ResponseObject, new_item_id
from loragate.gateway.operations.item_references import with_items
from loragate.gateway.schemas.inference.response_chat import chat_request, renamed_fields
from loragate.gateway.schemas.inference.response_items import ItemReference
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.schemas.validation import validated
from loragate.gateway.services import Services

_OFF = "responses are not stored here: send the items of the conversation as 'input'"
_ENDS = ("response.completed", "response.incomplete")


@dataclass(frozen=True)
class PreparedResponse:
    """A request that can be run. `items` are those of its own input; `stored` says whether its result is stored."""

    caller: TenantPrincipal
    head: ResponseHead
    items: Sequence[Json] = field(repr=False)
    stored: bool

    @property
    def kept(self) -> bool:
        """Whether anything of the result is stored."""
        return self.stored or self.head.body.conversation is not None


async def prepare(use: Services, caller: TenantPrincipal, body: ResponseRequest) -> PreparedResponse:
    """Return the request with its context. Raise InvalidRequest and StoreError."""
    stored = is_stored(use.config.responses, caller, body)
    if stored:
        async with use.store.tenant(caller.tenant_id) as scope:
            await scope.responses.check_room(background=bool(body.background))
    return await with_context(use, caller, body, stored=stored)


async def prepare_again(
    use: Services, caller: TenantPrincipal, request: Json, items: Sequence[Json], response_id: str, created: datetime
) -> PreparedResponse:
    """Return a stored request, to be run in the background."""
    body = validated(ResponseRequest, {**request, "input": list(items)})
    prepared = await with_context(use, caller, body, stored=True)
    head = ResponseHead(body, prepared.head.request, stored=True, id=response_id, created=int(created.timestamp()))
    return PreparedResponse(caller, head, items, stored=True)


async def with_context(
    use: Services, caller: TenantPrincipal, body: ResponseRequest, *, stored: bool
) -> PreparedResponse:
    """Return the request with the items that precede its input, and those that it refers to."""
    body, response_id = await with_items(use, caller, body), new_item_id("resp")
    kept = stored or body.conversation is not None
    own = [item for item in body.input if not isinstance(item, ItemReference)]
    items = stored_items(own, response_id) if kept else ()
    chat = chat_request(await whole_request(use, caller, body))
    with renamed_fields():
        generation = await use.preparer.chat(caller, chat)
    return PreparedResponse(caller, ResponseHead(body, generation, stored=stored, id=response_id), items, stored)


async def whole_request(use: Services, caller: TenantPrincipal, body: ResponseRequest) -> ResponseRequest:
    """Return the request whose input has all items of the conversation. Raise InvalidRequest and StoreError."""
    body = await with_items(use, caller, body)
    if body.previous_response_id is None and body.conversation_id is None:
        return body
    async with use.store.tenant(caller.tenant_id) as scope:
        before = await _context(scope, body)
    if not before:
        return body
    known = await use.body_threads.run(caller.tenant_id, partial(_known, body.model, before))
    return body.model_copy(update={"input": [*known.input, *body.input]})


def _known(model: str, items: Sequence[Json]) -> ResponseRequest:
    return validated(ResponseRequest, {"model": model, "input": list(items)})


def is_stored(config: ResponsesConfig, caller: TenantPrincipal, body: ResponseRequest) -> bool:
    """Return whether the response is stored. Raise InvalidRequest for what a server that stores none cannot do."""
    if not config.store:
        asked = {
            "store": body.store,
            "background": body.background,
            "previous_response_id": body.previous_response_id,
            "conversation": body.conversation,
        }
        for name, value in asked.items():
            if value:
                raise InvalidRequest(f"Invalid '{name}': {_OFF}.", param=name, code="responses_not_stored")
        return False
    return bool(body.background) or (caller.store_responses_by_default if body.store is None else body.store)


def require_store(config: ResponsesConfig, param: str) -> None:
    """Raise InvalidRequest if the server stores no responses."""
    if not config.store:
        raise InvalidRequest(f"Invalid '{param}': {_OFF}.", param=param, code="responses_not_stored")


async def keep(use: Services, prepared: PreparedResponse, document: ResponseObject) -> None:
    """Store a response that has ended, and add its items to its conversation. Raise Unavailable."""
    if not prepared.kept:
        return
    try:
        async with use.store.tenant(prepared.caller.tenant_id, write=True) as scope:
            await add_to_conversation(use, scope, prepared, document)
            if prepared.stored:
                await scope.responses.add(new_response(use, prepared, document))
    except StoreError as error:
        raise Unavailable(
            f"The response could not be stored: {error.message}", param="store", code=error.code
        ) from None


async def kept_events(
    use: Services, prepared: PreparedResponse, events: AsyncGenerator[ResponseEvent, None]
) -> AsyncGenerator[ResponseEvent, None]:
    """Yield the events; store the response before the last one."""
    async with aclosing(events):
        async for event in events:
            if event["type"] in _ENDS:
                await keep(use, prepared, event["response"])
            yield event


async def add_to_conversation(
    use: Services, scope: TenantScope, prepared: PreparedResponse, document: ResponseObject
) -> None:
    """Add the request's items and the output to the conversation, if there is one."""
    body = prepared.head.body
    if body.conversation_id is not None:
        added = AddedItems([*prepared.items, *document["output"]], document["id"], end_user_of(body))
        await scope.conversations.add(body.conversation_id, added, use.config.responses.lifetime)


async def enqueue(use: Services, prepared: PreparedResponse) -> ResponseObject:
    """Store a request that is run in the background; return its response."""
    document = prepared.head.document("queued")
    async with use.store.tenant(prepared.caller.tenant_id, write=True) as scope:
        await scope.responses.check_room(background=True)
        await scope.responses.add(new_response(use, prepared, document))
    use.responses.wake()
    return document


def new_response(use: Services, prepared: PreparedResponse, document: ResponseObject) -> NewResponse:
    """Return the response as it is stored."""
    body, caller = prepared.head.body, prepared.caller
    background = bool(body.background)
    request: dict[str, Any] = body.model_dump(exclude={"input"}, exclude_none=True, by_alias=True)
    return NewResponse(
        id=document["id"],
        key_id=caller.key_id,
        model=body.model,
        status=ResponseStatus(document["status"]),
        items=prepared.items,
        request=request,
        document=document,
        end_user=end_user_of(body),
        previous_id=body.previous_response_id,
        conversation_id=body.conversation_id,
        background=background,
        streamed=background and bool(body.stream),
        lifetime=use.config.responses.lifetime,
    )


def end_user_of(body: ResponseRequest) -> EndUser:
    """Return whose data the request has."""
    return EndUser(body.user, body.safety_identifier)


async def _context(scope: TenantScope, body: ResponseRequest) -> Sequence[Json]:
    if body.previous_response_id is not None:
        return await scope.responses.context(body.previous_response_id)
    assert body.conversation_id is not None
    return await scope.conversations.context(body.conversation_id)
