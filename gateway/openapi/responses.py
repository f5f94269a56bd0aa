"""What a route says about its answers, on the route itself.

    @router.get("/{name}")
    @answers(Adapter)
    async def get_adapter(…) -> Response: ...

Bodies, callers and the refusals that come with both are told from the route's dependencies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from loragate.gateway.dependencies.json_body import JsonBody

F = TypeVar("F", bound=Callable[..., Any])

_ATTRIBUTE = "__answers__"


@dataclass(frozen=True)
class Answers:
    """`shape` is the type of the JSON answer, None for any; `refusals` are statuses of this route's own.

    `media` are further media types of a good answer with what they hold; `events` is the type of what a stream's
    events hold; `form` the schema of a multipart body, `body` what reads a JSON one that may be sent instead;
    `headers` name those of a good answer beside every answer's.
    """

    shape: Any
    refusals: tuple[int, ...] = ()
    media: Mapping[str, str] = field(default_factory=dict)
    events: Any = None
    form: Mapping[str, Any] | None = None
    body: "JsonBody[Any] | None" = None
    headers: tuple[str, ...] = ()
    json: bool = True
    also: Mapping[int, Any] = field(default_factory=dict)
    """Answers that are no refusals though their status is an error's."""

    @property
    def shapes(self) -> set[Any]:
        """All that it names."""
        return {shape for shape in (self.shape, self.events, *self.also.values()) if shape is not None}


def answers(shape: Any, **more: Any) -> Callable[[F], F]:
    """See `Answers`."""

    def declare(endpoint: F) -> F:
        setattr(endpoint, _ATTRIBUTE, Answers(shape, **more))
        return endpoint

    return declare


def answers_of(endpoint: Callable[..., Any]) -> Answers:
    """What the route of `endpoint` declared."""
    declared: Answers = getattr(endpoint, _ATTRIBUTE)
    return declared
