"""Tags in one column: a JSON list, NULL where there are none."""

import orjson
from sqlalchemy import Dialect, Text, TypeDecorator


class TagsColumn(TypeDecorator[tuple[str, ...]]):
    """In the order in which they are told."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        return orjson.dumps(value).decode() if value else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        return () if value is None else tuple(orjson.loads(value))
