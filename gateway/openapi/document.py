"""The whole document, built when somebody first asks for it."""

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import iter_route_contexts

from loragate.gateway.openapi.answers import answers_of
from loragate.gateway.openapi.operation import ADMIN_KEY, TENANT_KEY, body_of, completed
from loragate.gateway.openapi.refusals import header_components, refusal_components
from loragate.gateway.openapi.schemas import collected
from loragate.gateway.openapi.shapes.common import ErrorEnvelope

_DESCRIPTION = """\
One base model, many tenants, many LoRA adapters. `/v1` is OpenAI's API, with adapters as models, and what a tenant \
does with its adapters; `/admin/v1` is the operator's.

Every refusal has OpenAI's error envelope. A POST that creates something takes an `Idempotency-Key`. Lists take \
`limit` and `after`, the `last_id` of the page before."""

_TAGS = {
    "inference": "Completions and embeddings, as in OpenAI's API. `model` is the base model, or an adapter by `name`, "
    "`name:version` or `name@alias`.",
    "models": "What a key may use as `model`.",
    "adapters": "A tenant's adapters: versions, aliases, files.",
    "usage": "What a tenant used.",
    "admin": "Tenants, keys, the audit log, engines, usage.",
    "health": "For probes and Prometheus.",
}

_SECURITY = {
    TENANT_KEY: {"type": "http", "scheme": "bearer", "description": "A tenant's key, `lg-<id>-<secret>`."},
    ADMIN_KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "The admin key, or a token of the OpenID Connect provider that the server trusts.",
    },
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Kept once it is built."""
    if app.openapi_schema is None:
        app.openapi_schema = _document(app)
    return app.openapi_schema


def _document(app: FastAPI) -> dict[str, Any]:
    routes = list(_routes(app))
    bodies = {body.model for route in routes if (body := body_of(route.dependant)) is not None}
    declared = [answers_of(route.endpoint) for route in routes]
    shapes = {shape for each in declared for shape in (each.shape, each.events, *each.also.values()) if shape}
    drawn = get_openapi(title="loragate", version=version("loragate"), routes=app.routes, description=_DESCRIPTION)
    paths: dict[str, Any] = {}
    for route, answers in zip(routes, declared, strict=True):
        for method in sorted(each.lower() for each in route.methods):
            operation = {**drawn["paths"][route.path_format][method], "operationId": route.endpoint.__name__}
            paths.setdefault(route.path_format, {})[method] = completed(
                operation, method, route.status_code or 200, route.dependant, answers
            )
    return {
        **{name: drawn[name] for name in ("openapi", "info")},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": collected(bodies, {*shapes, ErrorEnvelope}),
            "responses": refusal_components(),
            "headers": header_components(),
            "securitySchemes": _SECURITY,
        },
    }


def _routes(app: FastAPI) -> Iterator[Any]:
    return (route for route in iter_route_contexts(app.routes) if getattr(route, "include_in_schema", False))
