"""Items of a request's input that refer to stored ones by their ids."""

from collections.abc import Mapping, Sequence
from functools import partial

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.names import shortened
from loragate.adapter_store.responses.response import Json
from loragate.gateway.objects.inference.responses import response_of_item
from loragate.gateway.schemas.inference.response_chat import unresolved
from loragate.gateway.schemas.inference.response_items import InputItem, ItemReference
from loragate.gateway.schemas.inference.responses import ResponseRequest
from loragate.gateway.schemas.validation import validated
from loragate.gateway.services import Services


async def with_items(use: Services, caller: TenantPrincipal, body: ResponseRequest) -> ResponseRequest:
    """Return the request with the items that it refers to in place of the references. Raise InvalidRequest if nothing
    is stored here, and StoreError, which is the same for an item of another tenant and for one that does not exist."""
    references = {number: item.id for number, item in enumerate(body.input) if isinstance(item, ItemReference)}
    if not references:
        return body
    if not use.config.responses.store:
        raise unresolved(min(references))
    wanted = {item_id: response_of_item(item_id) for item_id in references.values()}
    async with use.store.tenant(caller.tenant_id) as scope:
        found = await scope.referenced_items.find(wanted)
    for number, item_id in references.items():
        if item_id not in found:
            words = f"Item with id '{shortened(item_id)}' not found."
            raise NotFound(words, code="item_not_found", param=f"input.{number}.id")
    ids = list(found)
    items = await use.body_threads.run(caller.tenant_id, partial(_read, body.model, [found[each] for each in ids]))
    known: Mapping[str, InputItem | ItemReference] = dict(zip(ids, items, strict=True))
    return body.model_copy(
        update={"input": [known[item.id] if isinstance(item, ItemReference) else item for item in body.input]}
    )


def _read(model: str, items: Sequence[Json]) -> Sequence[InputItem | ItemReference]:
    return validated(ResponseRequest, {"model": model, "input": list(items)}).input
