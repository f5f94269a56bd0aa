"""The OpenAPI document. Bodies are read by our own dependency, so their schemas are added here."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"
_MODEL_KEY = "x-loragate-body"


def documented(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is read as `model`."""
    reference = {"$ref": _REF.format(model=model.__name__)}
    content = {"application/json": {"schema": reference}}
    return {"requestBody": {"required": True, "content": content}, _MODEL_KEY: model}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Built once and kept."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        models = {
            operation.pop(_MODEL_KEY)
            for path in document["paths"].values()
            for operation in path.values()
            if _MODEL_KEY in operation
        }
        _, schemas = models_json_schema(
            [(model, "validation") for model in sorted(models, key=lambda m: m.__name__)], ref_template=_REF
        )
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas.get("$defs", {}))
        app.openapi_schema = document
    return app.openapi_schema
