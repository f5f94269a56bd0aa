"""Routes without FastAPI's dependency resolution: what they provide to endpoints, and what they do not support."""

from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request, Response

from loragate.gateway.http.plain_route import PlainRoute


async def of_the_request(request: Request) -> str:
    return request.headers["x-name"]


async def of_nothing() -> int:
    return 7


async def test_dependencies_are_resolved_in_order() -> None:
    router = APIRouter(route_class=PlainRoute)
    order: list[str] = []

    async def first(request: Request) -> str:
        order.append("first")
        return await of_the_request(request)

    @router.get("/", dependencies=[Depends(of_nothing)])
    async def endpoint(
        name: Annotated[str, Depends(first)], number: Annotated[int, Depends(of_nothing)], request: Request
    ) -> Response:
        order.append("endpoint")
        return Response(f"{name} {number} {request.method}")

    app = FastAPI()
    app.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        answer = await client.get("/", headers={"x-name": "alice"})
    assert (answer.text, order) == ("alice 7 GET", ["first", "endpoint"])


def test_dependencies_that_only_fastapi_can_resolve_are_rejected() -> None:
    router = APIRouter(route_class=PlainRoute)

    async def nested(number: Annotated[int, Depends(of_nothing)]) -> int:
        return number

    async def of_the_query(page: int) -> int:
        return page

    for dependency in (nested, of_the_query):
        with pytest.raises(TypeError, match="plain route"):

            @router.get("/")
            async def endpoint(value: Annotated[int, Depends(dependency)]) -> Response:
                return Response()
