"""Compares responses with the OpenAPI document, more strictly than a client may: undocumented fields fail."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
from jsonschema import Draft202012Validator


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def closed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with objects that allow only their documented fields."""
    strict = copy.deepcopy(document)
    for schema in strict["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return strict


def found(document: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """Return what `node` refers to, or itself."""
    if "$ref" not in node:
        return node
    _, kind, name = node["$ref"].removeprefix("#/").split("/")
    target: dict[str, Any] = document["components"][kind][name]
    return target


def check_value(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    """Raise ValidationError if the value does not fit the schema."""
    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def check_response(document: dict[str, Any], operation: dict[str, Any], response: httpx.Response) -> None:
    """Check that its status, headers, media type and body are documented."""
    reported = f"{operation['operationId']}: {response.status_code} {response.text[:500]}"
    assert str(response.status_code) in operation["responses"], reported
    documented = found(document, operation["responses"][str(response.status_code)])
    for name, reference in documented["headers"].items():
        header = found(document, reference)
        value = response.headers.get(name)
        assert value is not None or not header["required"], f"{name} is missing: {reported}"
        if value is not None:
            check_value(document, header["schema"], int(value) if header["schema"].get("type") == "integer" else value)
    own = {name for name in response.headers if name.startswith(("x-", "retry-", "openai-", "idempotent"))}
    assert own <= {*documented["headers"], "x-accel-buffering"}, reported
    media = {name.replace(" ", ""): content for name, content in documented["content"].items()}
    content = (
        media.get(response.headers["content-type"].replace(" ", ""))
        or media[response.headers["content-type"].partition(";")[0]]
    )
    if response.headers["content-type"] == "application/json":
        check_value(document, content["schema"], response.json())
    if response.headers["content-type"].startswith("text/event-stream"):
        said = content["schema"]["properties"]["data"]["anyOf"][1]["contentSchema"]
        lines = [line.removeprefix("data: ") for line in response.text.split("\n") if line.startswith("data: ")]
        events = lines[:-1] if lines[-1] == "[DONE]" else lines
        for event in events:
            check_value(document, said, json.loads(event))
