"""The fields of requests as the types of OpenAI's and Anthropic's clients have them.

A field is known by its path: `messages[]<tool>.content` is the content of an item of the list `messages` with the form
`tool`. A form is one of several objects that a client may send in one place, and named by its `type` or `role`.
"""

import collections.abc
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import typing_extensions

NAMING = ("type", "role")  # the fields that say which form an object has
_QUALIFIERS = (typing_extensions.Required, typing_extensions.NotRequired, typing_extensions.ReadOnly)
_LISTS = (list, collections.abc.Iterable, collections.abc.Sequence)
_UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True)
class SdkField:
    """A field, or a whole form, whose path ends with the form's name. `types` are all that it may have."""

    path: str
    types: tuple[Any, ...]
    required: bool

    @property
    def is_form(self) -> bool:
        """Whether it is a form instead of a field."""
        return self.path.endswith(">")

    @property
    def samples(self) -> list[Any]:
        """Values that the client's type allows: all of them for literals and booleans, and else one of each type."""
        form = self.path.rpartition("<")[2][:-1] if self.is_form else ""
        found = [each for type_ in self.types for each in _samples(type_, form)]
        return [each for position, each in enumerate(found) if each not in found[:position]]


def fields_of(request: Any, is_whole: Callable[[str], bool], path: str = "") -> Iterator[SdkField]:
    """Yield the fields of a request's type in their order, and its forms. What is inside of a field or a form that
    `is_whole` is left out."""
    for form, objects in _forms(_alternatives(request)).items():
        inside = f"{path}<{form}>" if form else path
        if form:
            yield SdkField(inside, tuple(objects), required=False)
            if is_whole(inside):
                continue
        naming = {_naming(each) for each in objects if form}
        for name, annotations in _merged(objects).items():
            if name in naming:
                continue
            kinds = tuple(dict.fromkeys(each for annotation in annotations for each in _alternatives(annotation)))
            field = SdkField(f"{inside}.{name}".lstrip("."), kinds, all(map(_is_required, annotations)))
            yield field
            if not is_whole(field.path):
                objects_, items = _inside(kinds)
                yield from fields_of(objects_, is_whole, field.path)
                yield from fields_of(items, is_whole, f"{field.path}[]")


def _inside(kinds: Iterable[Any]) -> tuple[Any, Any]:
    """Return the types of the objects that a field may be, and of the items that it may have, as unions. An object
    that may have any fields counts as none."""
    kinds = list(kinds)
    items = [typing_extensions.get_args(each)[0] for each in kinds if typing_extensions.get_origin(each) in _LISTS]
    if any(typing_extensions.get_origin(each) is dict for each in kinds):
        return _union([]), _union(items)
    return _union([each for each in kinds if typing_extensions.is_typeddict(each)]), _union(items)


def _union(kinds: list[Any]) -> Any:
    return typing.Union[tuple(kinds)] if kinds else type(None)  # noqa: UP007


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types that an annotation allows."""
    bare = _bare(annotation)
    if typing_extensions.get_origin(bare) in _UNIONS:
        return [each for inner in typing_extensions.get_args(bare) for each in _alternatives(inner)]
    return [bare]


def _bare(annotation: Any) -> Any:
    """Return an annotation without `Required`, `Annotated` and the like."""
    while typing_extensions.get_origin(annotation) in (*_QUALIFIERS, typing.Annotated):
        annotation = typing_extensions.get_args(annotation)[0]
    return annotation


def _is_required(annotation: Any) -> bool:
    return typing_extensions.get_origin(annotation) is typing_extensions.Required


def _forms(kinds: list[Any]) -> dict[str, list[Any]]:
    """Return the objects among the types by the names of their forms; those without a name have the same form."""
    named: dict[str, list[Any]] = {}
    for each in kinds:
        if typing_extensions.is_typeddict(each):
            naming = _naming(each)
            for name in [""] if naming is None else _literals(_alternatives(_fields(each)[naming])):
                named.setdefault(name, []).append(each)
    return named


def _naming(object_: Any) -> str | None:
    """Return the field that says which form an object has; None if it has no such field."""
    fields = _fields(object_)
    return next((name for name in NAMING if name in fields and _literals(_alternatives(fields[name]))), None)


@cache
def _fields(object_: Any) -> dict[str, Any]:
    """Return the annotations of an object's fields by their names in JSON."""
    hints = typing_extensions.get_type_hints(object_, include_extras=True)
    return {_json_name(name, annotation): annotation for name, annotation in hints.items()}


def _json_name(name: str, annotation: Any) -> str:
    while typing_extensions.get_origin(annotation) in _QUALIFIERS:
        annotation = typing_extensions.get_args(annotation)[0]
    aliases = [getattr(each, "alias", None) for each in getattr(annotation, "__metadata__", ())]
    return next(filter(None, aliases), name)


def _merged(objects: list[Any]) -> dict[str, list[Any]]:
    """Return the annotations of each field in all the objects that have it."""
    merged: dict[str, list[Any]] = {}
    for each in objects:
        for name, annotation in _fields(each).items():
            merged.setdefault(name, []).append(annotation)
    return merged


def _literals(kinds: Iterable[Any]) -> list[Any]:
    literals = [each for each in kinds if typing_extensions.get_origin(each) is typing_extensions.Literal]
    return [value for each in literals for value in typing_extensions.get_args(each)]


_SAMPLES: Mapping[Any, list[Any]] = {str: ["text"], int: [1], float: [0.5], bool: [True, False], object: [{}]}


def _samples(kind: Any, form: str = "") -> list[Any]:
    origin = typing_extensions.get_origin(kind)
    if origin is typing_extensions.Literal:
        return list(typing_extensions.get_args(kind))
    if typing_extensions.is_typeddict(kind):
        return [_sample_object(kind, form)]
    if origin in _LISTS:
        items = _alternatives(typing_extensions.get_args(kind)[0])
        return [[each] for each in _literals(items) or _samples(items[0])[:1]]
    return [{}] if origin is dict else _SAMPLES.get(kind, [])


def _sample_object(kind: Any, form: str) -> dict[str, Any]:
    sample = {}
    for name, annotation in _fields(kind).items():
        if _is_required(annotation):
            values = [each for type_ in _alternatives(annotation) for each in _samples(type_)]
            sample[name] = form if name in NAMING and form in values else values[0]
    return sample
