"""The whole OpenAPI document, built when it is first requested."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts

from loragate.gateway.openapi.error_responses import error_components
from loragate.gateway.openapi.headers import header_components
from loragate.gateway.openapi.operation import Operation
from loragate.gateway.openapi.responses import description_of
from loragate.gateway.openapi.schemas import collected, of_parameters
from loragate.gateway.openapi.security import SECURITY_SCHEMES

_DESCRIPTION = """\
A gateway to one base model with many LoRA adapters, for many tenants. `/v1` is OpenAI's API, in which adapters are \
models, extended by routes for a tenant's adapters. `/admin/v1` is for the operator.

Every error response has the shape of OpenAI's error envelope, but those of `/v1/messages` have Anthropic's. A POST \
that creates something accepts an `Idempotency-Key`. Lists accept `limit` and `after`; pass the `last_id` of a page as \
`after` to get the next one."""

_TAGS = {
    "inference": "Completions and embeddings, as in OpenAI's API, and labels of texts. `model` is the base model, or "
    "an adapter by `name`, `name:version` or `name@alias`.",
    "models": "The names that a key may use as `model`.",
    "adapters": "A tenant's adapters, with their versions, aliases and files.",
    "files": "Files, uploaded whole or in parts, as in OpenAI's API: training data, adapters to create, and batches.",
    "responses": "Responses that are stored, and conversations, as in OpenAI's API, where the server stores any.",
    "batches": "Files of requests that are run when there is time, as in OpenAI's API.",
    "training": "Runs of the training API, which is the Tinker SDK's and not described here.",
    "fine-tuning": "Jobs that train adapters, as in OpenAI's API.",
    "keys": "The tenant and the scopes of a key.",
    "usage": "A tenant's usage, and how its requests were served.",
    "admin": "Tenants, keys, adapters, the audit log, engines, jobs and usage, for the operator.",
    "health": "Routes for probes and Prometheus.",
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document, which is built only once."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    drawn = get_openapi(title="loragate", version=version("loragate"), routes=app.routes, description=_DESCRIPTION)
    paths: dict[str, dict[str, Operation]] = {}
    for path, operation in _operations(app, drawn["paths"]):
        paths.setdefault(path, {})[operation.method] = operation
    operations = [operation for methods in paths.values() for operation in methods.values()]
    return {
        **{name: drawn[name] for name in ("openapi", "info")},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": {
            path: {method: operation.document for method, operation in methods.items()}
            for path, methods in paths.items()
        },
        "components": {
            "schemas": of_parameters((each.document for each in operations), drawn["components"]["schemas"])
            | collected(
                {operation.body.model for operation in operations if operation.body},
                set[Any]().union(*(operation.described.shapes for operation in operations)),
            ),
            "responses": error_components(),
            "headers": header_components(),
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _operations(app: FastAPI, drawn: dict[str, Any]) -> Iterator[tuple[str, Operation]]:
    """Yield the operations with their paths."""
    for route in iter_route_contexts(app.routes):
        if route.path_format not in drawn:
            continue
        endpoint, dependant = route.endpoint, route.dependant
        assert endpoint is not None
        assert dependant is not None
        for method in sorted(each.lower() for each in route.methods or ()):
            yield (
                route.path_format,
                Operation(
                    endpoint.__name__,
                    method,
                    route.status_code or 200,
                    drawn[route.path_format][method],
                    dependant,
                    description_of(endpoint),
                ),
            )
