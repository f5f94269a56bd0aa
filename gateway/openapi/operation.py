"""The part of the document that describes one route."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi.dependencies.models import Dependant

from loragate.gateway.dependencies.json_body import JsonBody
from loragate.gateway.dependencies.requirements import Admin, Requirement, count_change
from loragate.gateway.openapi.content import other_response, request_of, response_of
from loragate.gateway.openapi.error_responses import reference
from loragate.gateway.openapi.responses import RouteDescription
from loragate.gateway.openapi.security import error_statuses_of, need_of, security_of

_BODY_ERRORS = (400, 408, 413, 415)
_CHANGES = frozenset({"post", "put", "patch", "delete"})


@dataclass(frozen=True)
class Operation:
    """An operation. `drawn` is FastAPI's description, `dependant` its dependencies, `status` that of a success."""

    name: str
    method: str
    status: int
    drawn: dict[str, Any]
    dependant: Dependant
    described: RouteDescription

    @property
    def body(self) -> JsonBody[Any] | None:
        """The dependency that reads its body."""
        bodies = (call for call in _calls(self.dependant) if isinstance(call, JsonBody))
        return self.described.body or next(bodies, None)

    @property
    def requirement(self) -> Requirement:
        """The requirement that its caller must meet."""
        return next(call for call in _calls(self.dependant) if isinstance(call, Requirement))

    @property
    def document(self) -> dict[str, Any]:
        """The description, with what FastAPI cannot know."""
        parameters, request = self._parameters, request_of(self.body, self.described)
        return {
            "tags": self.drawn["tags"],
            "summary": self.name.replace("_", " ").capitalize(),
            "description": f"{self.drawn['description']}\n\n{need_of(self.requirement)}",
            "operationId": self.name,
            "security": security_of(self.requirement),
            **({"parameters": parameters} if parameters else {}),
            **({"requestBody": request} if request else {}),
            "responses": {str(status): response for status, response in sorted(self._responses.items())},
        }

    @property
    def _parameters(self) -> list[dict[str, Any]]:
        return [_without_null(each) for each in self.drawn.get("parameters", ())]

    @property
    def _once(self) -> bool:
        return any(each["name"] == "Idempotency-Key" for each in self._parameters)

    @property
    def _responses(self) -> dict[int, Any]:
        replayed = ("idempotent-replayed",) if self._once else ()
        return {
            self.status: response_of(self.described, replayed),
            **{status: other_response(shape) for status, shape in self.described.also.items()},
            **{status: reference(status, self.described.error_shape) for status in self._errors},
        }

    @property
    def _errors(self) -> Iterator[int]:
        yield from error_statuses_of(self.requirement)
        yield from self.described.errors
        if self._parameters:
            yield 400
        if any(each["in"] == "path" for each in self._parameters):
            yield 404
        if self.body is not None or self.described.form is not None:
            yield from _BODY_ERRORS
        if self._once:
            yield 409
        if count_change in _calls(self.dependant) and not isinstance(self.requirement, Admin):
            yield 429
        if self.method in _CHANGES and "inference" not in self.drawn["tags"]:
            yield 507


def _calls(dependant: Dependant) -> Iterator[Any]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from _calls(dependency)


def _without_null(parameter: dict[str, Any]) -> dict[str, Any]:
    """Return the parameter without null, which does not exist in a URL: an absent parameter is left out."""
    schema = dict(parameter["schema"])
    schema.pop("title", None)
    options = [option for option in schema.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        schema = options[0] | schema
    elif options:
        schema["anyOf"] = options
    if parameter["name"] == "after" and schema.get("type") == "string" and "default" not in schema:
        schema["minLength"] = 1  # the first page has no `after`
    return {**parameter, "schema": schema}
