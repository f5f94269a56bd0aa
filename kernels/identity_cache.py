"""A cache of values derived from recent batch compositions: all layers of a step pass the identical tuple."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_MAX_ENTRIES = 8

T = TypeVar("T")


class IdentityCache(Generic[T]):
    """Values by the identity of a tuple and by a second, hashable key."""

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[Any, ...], Hashable, T]] = []

    def get(self, segments: tuple[Any, ...], other: Hashable, make: Callable[[], T]) -> T:
        for known, with_it, made in self._entries:
            if known is segments and with_it == other:
                return made
        made = make()
        self._entries[: -_MAX_ENTRIES + 1] = []
        self._entries.append((segments, other, made))
        return made
