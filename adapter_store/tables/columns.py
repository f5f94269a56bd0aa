"""Limits in one column: a JSON object of what is limited, NULL where nothing is."""

import orjson
from sqlalchemy import Dialect, Text, TypeDecorator

from loragate.adapter_store.limits import Limits


class LimitsColumn(TypeDecorator[Limits]):
    """Of one kind of limits."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Limits]) -> None:
        super().__init__()
        self.kind = kind
        self._unlimited = kind()  # most of a list's

    def process_bind_param(self, value: Limits | None, dialect: Dialect) -> str | None:
        return orjson.dumps(value.stored).decode() if value is not None and value.stored else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> Limits:
        return self._unlimited if value is None else self.kind(**orjson.loads(value))


class TagsColumn(TypeDecorator[tuple[str, ...]]):
    """In the order in which they are told."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        return orjson.dumps(value).decode() if value else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        return () if value is None else tuple(orjson.loads(value))
