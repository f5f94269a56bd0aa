"""GET /openapi.json, and the page /docs."""

import asyncio

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse

from loragate.gateway.dependencies.requirements import public
from loragate.gateway.http.envelope import json_response
from loragate.gateway.openapi.document import openapi_document
from loragate.gateway.openapi.swagger_ui import PAGE, SECURITY_POLICY, Asset, file_of

router = APIRouter(dependencies=[public], include_in_schema=False)

_HEADERS = {
    "content-security-policy": SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@router.get("/openapi.json")
async def openapi(request: Request) -> Response:
    """Return the OpenAPI document."""
    return json_response(await asyncio.to_thread(openapi_document, request.app))


@router.get("/docs")
async def page() -> Response:
    """Return the documentation page, with a form for each route."""
    return _file(PAGE)


@router.get("/docs/{asset}")
async def asset(asset: Asset) -> Response:
    """Return a file of the documentation page."""
    return _file(asset)


def _file(name: str) -> Response:
    path, media_type = file_of(name)
    return FileResponse(path, media_type=media_type, headers=_HEADERS)
