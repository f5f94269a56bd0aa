"""/v1/adapters/{name}/aliases."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import AdapterReader, AdapterWriter, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.errors import NotFound
from loragate.gateway.http.envelope import json_response
from loragate.gateway.objects.adapters import Alias, AliasList, DeletedAlias, alias_object
from loragate.gateway.objects.alias_metrics import AliasMetrics
from loragate.gateway.objects.common import list_object
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import adapters as actions
from loragate.gateway.operations.alias_metrics import alias_metrics
from loragate.gateway.schemas.resources.adapters import DEFAULT_HOURS, MAX_HOURS, AliasPut

router = APIRouter(prefix="/v1/adapters/{name}/aliases", tags=["adapters"])


@router.get("")
@describes(AliasList)
async def list_aliases(name: str, caller: AdapterReader, use: Use) -> Response:
    """List all aliases of an adapter, by name."""
    async with use.store.tenant(caller.tenant_id) as scope:
        aliases = await scope.adapters.aliases(name)
    return json_response(list_object([alias_object(name, alias, to) for alias, to in aliases.items()]))


@router.get("/{alias}")
@describes(Alias)
async def get_alias(name: str, alias: str, caller: AdapterReader, use: Use) -> Response:
    """Get an alias and the versions that it points to."""
    async with use.store.tenant(caller.tenant_id) as scope:
        aliases = await scope.adapters.aliases(name)
    if alias not in aliases:
        raise NotFound("The alias does not exist.", param="alias", code="alias_not_found")
    return json_response(alias_object(name, alias, aliases[alias]))


@router.get("/{alias}/metrics")
@describes(AliasMetrics)
async def get_alias_metrics(
    name: str,
    alias: str,
    caller: AdapterReader,
    use: Use,
    hours: Annotated[int, Query(ge=1, le=MAX_HOURS)] = DEFAULT_HOURS,
) -> Response:
    """Get metrics of each version over the last hours, for the requests that named this alias. `weight` is null if the
    alias no longer points to the version. A request is included a few seconds after it has ended."""
    return json_response(await alias_metrics(use, caller, name, alias, hours))


@router.put("/{alias}")
@describes(Alias, errors=(409,))
async def put_alias(
    name: str,
    alias: str,
    caller: AdapterWriter,
    by: By,
    body: Annotated[AliasPut, Depends(JsonBody(AliasPut))],
    use: Use,
) -> Response:
    """Point an alias to these versions, by weight. The alias is created if it does not exist."""
    return json_response(await actions.set_alias(use, caller, by, name, alias, body))


@router.delete("/{alias}")
@describes(DeletedAlias, errors=(409,))
async def delete_alias(name: str, alias: str, caller: AdapterWriter, by: By, use: Use) -> Response:
    """Delete an alias but not its versions. Responds 409 for the alias `default`, to which the adapter's name without
    an alias refers."""
    return json_response(await actions.delete_alias(use, caller, by, name, alias))
