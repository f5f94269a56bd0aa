"""Conversion of exceptions of the gateway, the store and the framework to error responses."""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from loragate.adapter_store.errors import StoreError
from loragate.gateway.errors import ApiError, ErrorDetails, error_details, error_type
from loragate.gateway.http.envelope import error_response
from loragate.gateway.schemas.validation import first_error


def add_exception_handlers(app: FastAPI) -> None:
    """Add the handlers; the request middleware handles all other exceptions."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(StoreError, _store_error)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(HTTPException, _framework_error)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error, request.scope)


async def _store_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StoreError)
    return error_response(error_details(error), request.scope)


async def _parameters(request: Request, error: Exception) -> Response:
    """Handle invalid path and query parameters; bodies are not validated by the framework."""
    assert isinstance(error, RequestValidationError)
    findings = [{**finding, "loc": finding["loc"][1:]} for finding in error.errors()]
    return error_response(first_error(findings), request.scope)


async def _framework_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message, code = {
        404: (f"There is no route {request.method} at this URL.", "unknown_url"),
        405: (f"This URL does not support {request.method}.", "method_not_allowed"),
    }.get(error.status_code, (str(error.detail), None))
    headers = {"allow": _allowed(request)} if error.status_code == 405 else dict(error.headers or {})
    type_ = error_type(error.status_code)
    return error_response(ErrorDetails(error.status_code, message, type_, None, code, headers), request.scope)


def _allowed(request: Request) -> str:
    """Return the methods of all routes at the URL; the framework returns those of the first route only."""
    path = request.scope["path"]
    routes = [route for route in iter_route_contexts(request.app.routes) if route.path_regex.match(path)]
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))
