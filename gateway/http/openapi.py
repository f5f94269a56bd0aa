"""The OpenAPI document. Bodies are read by our own dependency, so their schemas are added here."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

_REF = "#/components/schemas/{model}"
_SCHEMAS = "x-loragate-schemas"


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is read as `model`."""
    schema = model.model_json_schema(ref_template=_REF)
    schemas = {**schema.pop("$defs", {}), model.__name__: schema}
    content = {"application/json": {"schema": {"$ref": _REF.format(model=model.__name__)}}}
    return {"requestBody": {"required": True, "content": content}, _SCHEMAS: schemas}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Built once and kept."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for path in document["paths"].values():
            for operation in path.values():
                schemas.update(operation.pop(_SCHEMAS, {}))
        app.openapi_schema = document
    return app.openapi_schema
