"""Uploads and downloads, which the panel streams between browsers and the API."""

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from urllib.parse import urlencode

import httpx
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from loragate.panel.api import ApiError, path
from loragate.panel.sessions import Session

log = logging.getLogger(__name__)

router = APIRouter(prefix="/transfer")

_FORM_HEADERS = ("content-type", "content-length", "idempotency-key")
_FILE_HEADERS = ("content-type", "content-length")


@router.post("/adapters")
async def upload_adapter(request: Request) -> Response:
    """Pass an adapter's form on to the API, and its response back."""
    return await _upload(request, "/v1/adapters")


@router.post("/files")
async def upload_file(request: Request) -> Response:
    """Pass a file's form on to the API, and its response back."""
    return await _upload(request, "/v1/files")


async def _upload(request: Request, url: str) -> Response:
    session: Session = request.state.session
    headers = {name: value for name in _FORM_HEADERS if (value := request.headers.get(name)) is not None}
    try:
        async with session.api.proxied("POST", url, request.stream(), headers) as response:
            content = await response.aread()
    except ApiError as failure:
        return JSONResponse({"error": {"message": failure.message}}, failure.status)
    return Response(content, response.status_code, media_type="application/json")


@router.get("/usage.csv")
async def download_usage(request: Request) -> Response:
    """Download the usage table as CSV."""
    session: Session = request.state.session
    place = "/admin/v1/usage" if session.caller.is_operator else "/v1/usage"
    query = httpx.QueryParams({**dict(request.query_params), "format": "csv"})
    return await _download(session, f"{place}?{query}", "usage.csv")


@router.get("/trace.json")
async def download_trace(request: Request) -> Response:
    """Download an engine's last steps as a trace."""
    session: Session = request.state.session
    engine_id = request.query_params.get("engine", "engine-0")
    return await _download(session, path("admin", "v1", "engines", engine_id, "trace"), "engine-trace.json")


@router.get("/adapters/{name}/{version}/{file}")
async def download_file(request: Request, name: str, version: int, file: str) -> Response:
    """Download one of a version's two files."""
    session: Session = request.state.session
    return await _download(session, path("v1", "adapters", name, "versions", version, "files", file), file)


@router.get("/merged/{name}/{version}")
async def download_merged(request: Request, name: str, version: int) -> Response:
    """Download a version merged into the base model. An error leads back to the adapter's page, which says why."""
    session: Session = request.state.session
    url = path("v1", "adapters", name, "versions", version, "merged")
    response = await _download(session, url, f"{name}-{version}-merged.tar")
    if isinstance(response, _Download):
        return response
    query = urlencode({"merged": version, "status": response.status_code})
    return RedirectResponse(f"{path('adapters', name)}?{query}", 303)


@router.get("/files/{file_id}/{name}")
async def download_tenants_file(request: Request, file_id: str, name: str) -> Response:
    """Download one of the tenant's files under its name."""
    session: Session = request.state.session
    return await _download(session, path("v1", "files", file_id, "content"), name)


async def _download(session: Session, url: str, file: str) -> Response:
    stack = AsyncExitStack()
    try:
        response = await stack.enter_async_context(
            session.api.proxied("GET", url, None, {"accept-encoding": "identity"})
        )
    except ApiError as failure:
        return Response(failure.message, failure.status, media_type="text/plain")
    if not response.is_success:
        await response.aread()
        await stack.aclose()
        return Response("The gateway did not return this file.", response.status_code, media_type="text/plain")
    headers = {name: value for name in _FILE_HEADERS if (value := response.headers.get(name)) is not None}
    headers["content-disposition"] = f'attachment; filename="{"".join(c for c in file if c.isalnum() or c in "._-")}"'
    return _Download(session, response, stack, headers)


class _Download(StreamingResponse):
    """Passes a response of the API on, no faster than the browser reads it. If the browser disconnects, the response is
    closed; if the gateway does, so is the browser's connection."""

    def __init__(
        self, session: Session, response: httpx.Response, stack: AsyncExitStack, headers: Mapping[str, str]
    ) -> None:
        super().__init__(response.aiter_raw(), headers=headers)
        self._session = session
        self._stack = stack

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._session.downloads += 1
        try:
            async with self._stack:
                await super().__call__(scope, receive, send)
        except ApiError:
            log.warning("a download ended early, because the connection to the gateway was closed")
        finally:
            self._session.downloads -= 1
