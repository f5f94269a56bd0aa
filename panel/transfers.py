"""Bytes between browsers and the API that pass through the panel without staying: uploads and downloads."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from loragate.panel.api import path
from loragate.panel.failure import Failure
from loragate.panel.sessions import Session

router = APIRouter(prefix="/transfer")

_OF_A_FORM = ("content-type", "content-length", "idempotency-key")
_OF_A_FILE = ("content-type", "content-length")


@router.post("/adapters")
async def upload_adapter(request: Request) -> Response:
    """The API's own form, and its own answer."""
    return await _upload(request, "/v1/adapters")


@router.post("/files")
async def upload_file(request: Request) -> Response:
    """Likewise."""
    return await _upload(request, "/v1/files")


async def _upload(request: Request, url: str) -> Response:
    session: Session = request.state.session
    headers = {name: value for name in _OF_A_FORM if (value := request.headers.get(name)) is not None}
    try:
        async with session.api.passed_on("POST", url, request.stream(), headers) as answer:
            content = await answer.aread()
    except Failure as failure:
        return JSONResponse({"error": {"message": failure.message}}, failure.status)
    return Response(content, answer.status_code, media_type="application/json")


@router.get("/usage.csv")
async def download_usage(request: Request) -> Response:
    """The API's table."""
    session: Session = request.state.session
    place = "/admin/v1/usage" if session.caller.is_operator else "/v1/usage"
    query = httpx.QueryParams({**dict(request.query_params), "format": "csv"})
    return await _download(session, f"{place}?{query}", "usage.csv")


@router.get("/trace.json")
async def download_trace(request: Request) -> Response:
    """The engine's last steps."""
    session: Session = request.state.session
    return await _download(session, path("admin", "v1", "engines", "engine-0", "trace"), "engine-trace.json")


@router.get("/adapters/{name}/{version}/{file}")
async def download_file(request: Request, name: str, version: int, file: str) -> Response:
    """One of a version's two files."""
    session: Session = request.state.session
    return await _download(session, path("v1", "adapters", name, "versions", version, "files", file), file)


@router.get("/files/{file_id}/{name}")
async def download_tenants_file(request: Request, file_id: str, name: str) -> Response:
    """One of the tenant's files, under its name."""
    session: Session = request.state.session
    return await _download(session, path("v1", "files", file_id, "content"), name)


async def _download(session: Session, url: str, file: str) -> Response:
    stack = AsyncExitStack()
    try:
        answer = await stack.enter_async_context(
            session.api.passed_on("GET", url, None, {"accept-encoding": "identity"})
        )
    except Failure as failure:
        return Response(failure.message, failure.status, media_type="text/plain")
    if not answer.is_success:
        await answer.aread()
        await stack.aclose()
        return Response("The gateway does not give this file.", answer.status_code, media_type="text/plain")
    headers = {name: value for name in _OF_A_FILE if (value := answer.headers.get(name)) is not None}
    headers["content-disposition"] = f'attachment; filename="{"".join(c for c in file if c.isalnum() or c in "._-")}"'
    return StreamingResponse(_chunks(answer, stack), headers=headers)


async def _chunks(answer: httpx.Response, stack: AsyncExitStack) -> AsyncIterator[bytes]:
    async with stack:
        async for chunk in answer.aiter_raw():
            yield chunk
