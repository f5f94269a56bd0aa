"""Routes without FastAPI's general resolution of dependencies, which costs more time than the dependencies."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import cached_property
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

Dependency = Callable[..., Awaitable[Any]]


class PlainRoute(APIRoute):
    """A route whose dependencies take the request or nothing; they are awaited in order, each once per request.

    The endpoint returns a Response. Everything else that FastAPI does with a route is unchanged. Exceptions go to the
    application's handlers.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        response = await self._respond(Request(scope, receive, send))
        await response(scope, receive, send)

    @cached_property
    def _respond(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return self.get_route_handler()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint, takes_request = self.endpoint, self.dependant.request_param_name
        _require_plain(self.dependant)
        steps = [_step(each) for each in self.dependant.dependencies]

        async def handle(request: Request) -> Response:
            arguments = {takes_request: request} if takes_request else {}
            for name, dependency, request_name in steps:
                value = await (dependency(**{request_name: request}) if request_name else dependency())
                if name is not None:
                    arguments[name] = value
            response: Response = await endpoint(**arguments)
            return response

        return handle


def _step(dependency: Dependant) -> tuple[str | None, Dependency, str | None]:
    """Return its parameter, function and request parameter. Raise TypeError if only FastAPI can resolve it."""
    _require_plain(dependency)
    if dependency.call is None or dependency.dependencies:
        raise TypeError(f"{dependency.call} has parameters that a plain route cannot provide")
    return dependency.name, dependency.call, dependency.request_param_name


def _require_plain(dependant: Dependant) -> None:
    parameters = (dependant.path_params, dependant.query_params, dependant.header_params, dependant.cookie_params)
    names = (dependant.response_param_name, dependant.background_tasks_param_name, dependant.http_connection_param_name)
    if any(parameters) or dependant.body_params or any(names):
        raise TypeError(f"{dependant.call} has parameters that a plain route cannot provide")
