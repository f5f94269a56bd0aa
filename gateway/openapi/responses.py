"""Declarations of a route's responses, on the route itself.

    @router.get("/{name}")
    @describes(Adapter, errors=(409,))
    async def get_adapter(…) -> Response: ...

Bodies, callers and the errors that come with both are derived from the route's dependencies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from loragate.gateway.objects.common import ErrorEnvelope

if TYPE_CHECKING:
    from loragate.gateway.dependencies.json_body import JsonBody

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__route_description__"


@dataclass(frozen=True)
class RouteDescription:
    """`response` is the type of the JSON response, None for any; `errors` are error statuses specific to this route.

    `media` holds further media types of a success with their descriptions; `events` is the type of a stream's events;
    `form` is the schema of a multipart body, `body` reads a JSON body that may be sent instead; `headers` names headers
    of a success in addition to those of every response; `error_shape` is the type of its errors.
    """

    response: Any
    errors: tuple[int, ...] = ()
    media: Mapping[str, str] = field(default_factory=dict)
    events: Any = None
    form: Mapping[str, Any] | None = None
    body: "JsonBody[Any] | None" = None
    headers: tuple[str, ...] = ()
    json: bool = True
    error_shape: type = ErrorEnvelope
    also: Mapping[int, Any] = field(default_factory=dict)
    """Responses whose status is that of an error, but which do not have the error envelope."""

    @property
    def shapes(self) -> set[Any]:
        """All types that it names."""
        return {
            shape for shape in (self.response, self.events, self.error_shape, *self.also.values()) if shape is not None
        }


def describes(response: Any, **more: Any) -> Callable[[F], F]:
    """Declare the responses of a route; see `RouteDescription`."""

    def declare(endpoint: F) -> F:
        setattr(endpoint, _ATTRIBUTE, RouteDescription(response, **more))
        return endpoint

    return declare


def description_of(endpoint: Callable[..., Any]) -> RouteDescription:
    """Return what the route of `endpoint` has declared."""
    declared: RouteDescription = getattr(endpoint, _ATTRIBUTE)
    return declared
