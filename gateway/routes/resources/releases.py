"""/v1/adapters/{name}/promote, rollback, restore."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from loragate.gateway.dependencies.idempotency_key import OnlyOnce
from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import AdapterWriter, By
from loragate.gateway.dependencies.services import Use
from loragate.gateway.objects.adapters import Adapter, AdapterVersion, Alias
from loragate.gateway.openapi.responses import describes
from loragate.gateway.operations import releases as actions
from loragate.gateway.schemas.resources.adapters import Promotion, Rollback

router = APIRouter(prefix="/v1/adapters/{name}", tags=["adapters"])

Version = Annotated[int, Path(ge=1, lt=1 << 31)]


@router.post("/promote")
@describes(Alias, errors=(404, 409))
async def promote(
    name: str,
    caller: AdapterWriter,
    by: By,
    body: Annotated[Promotion, Depends(JsonBody(Promotion))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Point an alias to a single version: to `version`, or to the version that `from_alias` points to."""
    return (await actions.promote(use, caller, by, name, body, once)).response()


@router.post("/rollback")
@describes(Alias, errors=(404, 409))
async def rollback(
    name: str,
    caller: AdapterWriter,
    by: By,
    body: Annotated[Rollback, Depends(JsonBody(Rollback, optional=True))],
    once: OnlyOnce,
    use: Use,
) -> Response:
    """Point an alias to what it pointed to before its last change. A second rollback undoes the first."""
    return (await actions.rollback(use, caller, by, name, body, once)).response()


@router.post("/restore")
@describes(Adapter, errors=(404, 409))
async def restore(name: str, caller: AdapterWriter, by: By, once: OnlyOnce, use: Use) -> Response:
    """Restore the adapter of this name that was deleted last, with its aliases and the versions that were deleted with
    it. Responds 409 if the name is taken, or if it was deleted too long ago."""
    return (await actions.restore(use, caller, by, name, once)).response()


@router.post("/versions/{version}/restore")
@describes(AdapterVersion, errors=(404, 409))
async def restore_version(
    name: str, version: Version, caller: AdapterWriter, by: By, once: OnlyOnce, use: Use
) -> Response:
    """Restore a deleted version. Responds 409 if it was deleted too long ago."""
    return (await actions.restore_version(use, caller, by, name, version, once)).response()
