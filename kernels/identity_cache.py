"""What was made of the last compositions of the batch: all layers of a step hand over the identical tuple."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_REMEMBERED = 8

T = TypeVar("T")


class Recent(Generic[T]):
    """By the identity of a tuple, and something else that it depends on."""

    def __init__(self) -> None:
        self._made: list[tuple[tuple[Any, ...], Hashable, T]] = []

    def get(self, segments: tuple[Any, ...], other: Hashable, make: Callable[[], T]) -> T:
        for known, with_it, made in self._made:
            if known is segments and with_it == other:
                return made
        made = make()
        self._made[: -_REMEMBERED + 1] = []
        self._made.append((segments, other, made))
        return made
