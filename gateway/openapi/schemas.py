"""JSON Schemas of all request bodies and responses, under one name each."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import TypeAdapter

REF = "#/components/schemas/{model}"

_BY_NAME = ("properties", "patternProperties")
_VALUES = ("const", "enum", "examples")

Mode = Literal["validation", "serialization"]


def collected(bodies: Iterable[type], shapes: Iterable[type]) -> dict[str, Any]:
    """Return `components.schemas`."""
    wanted: list[tuple[str, Mode, TypeAdapter[Any]]] = [
        *((each.__name__, "validation", TypeAdapter(each)) for each in bodies),
        *((each.__name__, "serialization", TypeAdapter(each)) for each in shapes),
    ]
    roots, definitions = TypeAdapter.json_schemas(wanted, ref_template=REF)
    schemas = dict(definitions.get("$defs", {}))
    for (name, _), schema in roots.items():
        if schema != reference(name):
            schemas[name] = schema
    return {name: _plain(schemas[name]) for name in sorted(schemas)}


def of_parameters(operations: Iterable[Mapping[str, Any]], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schemas to which parameters refer, such as enumerations, from those that FastAPI drew."""
    parameters = [each["schema"] for operation in operations for each in operation.get("parameters", ())]
    names = sorted({each["$ref"].rpartition("/")[2] for each in parameters if "$ref" in each})
    return {name: _plain(drawn[name]) for name in names}


def _plain(schema: Any) -> Any:
    """Return the schema without titles, which repeat names, and without defaults of null."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _BY_NAME:
            plain[key] = {name: _plain(each) for name, each in value.items()}
        elif key in _VALUES:
            plain[key] = value
        elif key != "title" and (key, value) != ("default", None):
            plain[key] = _plain(value)
    return plain


def reference(name: str) -> Mapping[str, str]:
    """Return a reference to a schema of `collected`."""
    return {"$ref": REF.format(model=name)}
