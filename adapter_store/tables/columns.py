"""Column types for limits and lists of names, as JSON in one column."""

import orjson
from sqlalchemy import Dialect, Text, TypeDecorator

from loragate.adapter_store.limits import Limits


class LimitsColumn(TypeDecorator[Limits]):
    """Limits of one kind: a JSON object of the limits that are set, NULL where none is."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[Limits]) -> None:
        super().__init__()
        self.kind = kind
        self._unlimited = kind()  # shared, because most rows have it

    def process_bind_param(self, value: Limits | None, dialect: Dialect) -> str | None:
        return orjson.dumps(value.stored).decode() if value is not None and value.stored else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> Limits:
        return self._unlimited if value is None else self.kind(**orjson.loads(value))


class TagsColumn(TypeDecorator[tuple[str, ...]]):
    """Names in order, such as tags: a JSON list, NULL where there are none."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        return orjson.dumps(value).decode() if value else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        return () if value is None else tuple(orjson.loads(value))
