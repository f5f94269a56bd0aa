"""The reference of the REST API, made from the gateway's OpenAPI document."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from loragate.gateway.app import create_app
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.openapi.document import openapi_document

METHODS = ("get", "post", "put", "patch", "delete")
HEAD = """\
# REST reference

Look up a route, its fields and its responses. This page is made from the OpenAPI document, which a server has at
`/openapi.json`; [the REST API](../api.md) describes what all routes share.
"""


def document() -> dict[str, Any]:
    """Return the OpenAPI document. No server is started, and nothing is written."""
    here = Path(gettempdir())
    config = GatewayConfig("sqlite:///nowhere.db", "file:///nowhere", b"no secret", "unix:/nowhere", here)
    return openapi_document(create_app(config))


def page() -> str:
    """Return the page: each group's routes, then all objects."""
    spec = document()
    lines = [HEAD]
    for tag in spec["tags"]:
        lines += [f"\n## {tag['name'].capitalize()}\n", tag["description"], ""]
        for path, methods in spec["paths"].items():
            for method in METHODS:
                if tag["name"] in methods.get(method, {}).get("tags", ()):
                    lines += route(path, method, methods[method], spec)
    lines.append("\n## Objects\n")
    for name, schema in sorted(spec["components"]["schemas"].items()):
        lines += [f"### {name}\n", prose(schema.get("description", "")), "", *fields(schema)]
    return "\n".join(lines) + "\n"


def route(path: str, method: str, operation: dict[str, Any], spec: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of one route."""
    yield f"### {method.upper()} {path}\n"
    yield f"{prose(operation.get('summary', ''))}. {prose(operation.get('description', ''))}\n".lstrip(". ")
    parameters = [resolved(each, spec) for each in operation.get("parameters", ())]
    if parameters:
        yield "| parameter | in | type | |\n|---|---|---|---|"
        for each in parameters:
            about = prose(each.get("description", ""), cell=True)
            yield f"| `{each['name']}` | {each['in']} | {kind(each['schema'])} | {required(each)}{about} |"
        yield ""
    body = resolved(operation.get("requestBody", {}), spec).get("content", {})
    for media, content in body.items():
        yield f"Body, `{media}`: {kind(content['schema'])}\n"
        if "$ref" not in content["schema"]:
            yield from fields(content["schema"])
    yield "| status | response | |\n|---|---|---|"
    for status, response in operation["responses"].items():
        whole = resolved(response, spec)
        kinds = ", ".join(kind(each.get("schema", {})) for each in whole.get("content", {}).values())
        yield f"| {status} | {kinds} | {prose(whole.get('description', ''), cell=True)} |"
    yield ""


def fields(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the table of an object's fields."""
    properties = schema.get("properties")
    if not properties:
        yield f"{kind(schema)}\n"
        return
    yield "| field | type | |\n|---|---|---|"
    needed = schema.get("required", ())
    for name, each in properties.items():
        about = required({"required": name in needed}) + prose(each.get("description", ""), cell=True)
        default = f" Default: `{each['default']}`." if each.get("default") is not None else ""
        yield f"| `{name}` | {kind(each)} | {about}{default} |"
    yield ""


def kind(schema: dict[str, Any]) -> str:
    """Return a schema's type, with links to objects."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{re.sub(r'[^a-z0-9_-]', '', name.lower())})"
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(kind(each) for each in schema[choice]))
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"array of {kind(schema.get('items', {}))}"
    types = schema.get("type", "any value")
    return " or ".join(types) if isinstance(types, list) else types


def required(parameter: dict[str, Any]) -> str:
    """Return the word before the description of what a request must have."""
    return "**Required.** " if parameter.get("required") else ""


def prose(text: str, cell: bool = False) -> str:
    """Return a description on one line where it stands in a table."""
    return " ".join(text.split()).replace("|", "\\|") if cell else text.strip().removesuffix(".")


def resolved(part: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference within the document leads to."""
    if "$ref" not in part:
        return part
    found: Any = spec
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    return found
