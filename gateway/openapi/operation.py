"""One route's part of the document."""

from collections.abc import Iterator, Mapping
from inspect import cleandoc
from typing import Any

from fastapi.dependencies.models import Dependant

from loragate.gateway.auth.requirements import Admin, AdminOrAnybody, Public, Requirement, TenantAdmin, TenantWith
from loragate.gateway.http.bodies import JsonBody
from loragate.gateway.openapi.answers import Answers
from loragate.gateway.openapi.examples import ANSWERS, REQUESTS
from loragate.gateway.openapi.refusals import header_references
from loragate.gateway.openapi.refusals import reference as refusal_reference
from loragate.gateway.openapi.schemas import reference

TENANT_KEY, ADMIN_KEY = "tenantKey", "adminKey"
_BODY_REFUSALS = (400, 408, 413, 415)
_CHANGES = frozenset({"post", "put", "patch", "delete"})
_IDEMPOTENCY_KEY = "Idempotency-Key"


def completed(
    operation: dict[str, Any], method: str, status: int, dependant: Dependant, declared: Answers
) -> dict[str, Any]:
    """`operation` as FastAPI has it, with what FastAPI cannot know."""
    body, requirement = body_of(dependant), requirement_of(dependant)
    parameters = [_parameter(each) for each in operation.get("parameters", ())]
    names = {parameter["name"] for parameter in parameters}
    refusals = {*_refusals(requirement), *declared.refusals}
    if parameters:
        refusals.add(400)
    if any(parameter["in"] == "path" for parameter in parameters):
        refusals.add(404)
    if body is not None or declared.form is not None:
        refusals.update(_BODY_REFUSALS)
    if method in _CHANGES and "inference" not in operation["tags"]:
        refusals.add(507)
    if _IDEMPOTENCY_KEY in names:
        refusals.add(409)
    if not isinstance(requirement, Public):
        refusals.update((500, 503))
    replayed = ("idempotent-replayed",) if _IDEMPOTENCY_KEY in names else ()
    responses = {
        status: _answer(declared, replayed),
        **{also: _also(shape) for also, shape in declared.also.items()},
        **{refusal: refusal_reference(refusal) for refusal in refusals},
    }
    request = _request(body, declared)
    return {
        "tags": operation["tags"],
        "summary": operation["operationId"].replace("_", " ").capitalize(),
        "description": _description(operation["description"], requirement),
        "operationId": operation["operationId"],
        "security": _security(requirement),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": request} if request else {}),
        "responses": {str(each): responses[each] for each in sorted(responses)},
    }


def body_of(dependant: Dependant) -> JsonBody[Any] | None:
    """What reads the route's body."""
    return next((call for call in _calls(dependant) if isinstance(call, JsonBody)), None)


def requirement_of(dependant: Dependant) -> Requirement:
    """What the route demands of its caller."""
    return next(call for call in _calls(dependant) if isinstance(call, Requirement))


def _calls(dependant: Dependant) -> Iterator[Any]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)


def _parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not there is left out; there is no null in a URL."""
    schema = dict(parameter["schema"])
    schema.pop("title", None)
    options = [option for option in schema.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        schema = options[0] | schema
    elif options:
        schema["anyOf"] = options
    return {**parameter, "schema": schema}


def _refusals(requirement: Requirement) -> tuple[int, ...]:
    match requirement:
        case Public():
            return ()
        case AdminOrAnybody():
            return (401,)
        case _:
            return (401, 403)


def _security(requirement: Requirement) -> list[dict[str, list[str]]]:
    match requirement:
        case TenantWith(scope=scope):
            return [{TENANT_KEY: [scope.value]}]
        case Admin():
            return [{ADMIN_KEY: []}]
        case TenantAdmin():
            return [{ADMIN_KEY: []}, {TENANT_KEY: ["admin"]}]
        case AdminOrAnybody():
            return [{}, {ADMIN_KEY: []}]
        case _:
            return []


def _description(text: str, requirement: Requirement) -> str:
    match requirement:
        case TenantWith(scope=scope):
            return f"{text}\n\nNeeds a tenant's key with the scope `{scope}`."
        case Admin():
            return f"{text}\n\nNeeds the admin key."
        case TenantAdmin():
            return f"{text}\n\nNeeds the admin key, or a key of the tenant with the scope `admin`."
        case _:
            return text


def _request(body: JsonBody[Any] | None, declared: Answers) -> dict[str, Any]:
    if declared.form is not None:
        return {"required": True, "content": {"multipart/form-data": {"schema": dict(declared.form)}}}
    if body is None:
        return {}
    examples = {name: {"summary": name, "value": value} for name, value in REQUESTS[body.model].items()}
    content = {"schema": reference(body.model.__name__), "examples": examples}
    return {"required": not body.optional, "content": {"application/json": content}}


def _answer(declared: Answers, headers: tuple[str, ...]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if declared.json:
        content["application/json"] = _content(declared.shape)
    if declared.events is not None:
        content["text/event-stream"] = _stream(declared.events)
    for media, words in declared.media.items():
        content[media] = {"schema": {"type": "string", "description": words}}
    return {"description": "Done.", "headers": header_references(*headers, *declared.headers), "content": content}


def _also(shape: Any) -> dict[str, Any]:
    description = (shape.__doc__ or "").strip()
    return {
        "description": description,
        "headers": header_references(),
        "content": {"application/json": _content(shape)},
    }


def _content(shape: Any) -> Mapping[str, Any]:
    if shape is None:
        return {"schema": {}}
    return {"schema": reference(shape.__name__), "example": ANSWERS[shape]}


def _stream(event: Any) -> dict[str, Any]:
    """Before OpenAPI 3.2 the schema of an event stream is that of its events."""
    words = cleandoc(event.__doc__ or "")
    said = {"anyOf": [reference(event.__name__), reference("ErrorEnvelope")]}
    json = {"type": "string", "contentMediaType": "application/json", "contentSchema": said}
    data = {"anyOf": [{"const": "[DONE]"}, json]}
    return {"schema": {"type": "object", "description": words, "properties": {"data": data}, "required": ["data"]}}
