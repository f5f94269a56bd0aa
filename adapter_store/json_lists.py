"""Many rows of a subquery in one value, so that a page needs one query whatever it tells of its items."""

from typing import Any

from sqlalchemy import Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class json_lists(FunctionElement[str]):
    """An aggregate: a JSON list of lists, one of the arguments' values for each row, in no order; or NULL or []."""

    type = Text()
    inherit_cache = True


@compiles(json_lists, "sqlite")
def _sqlite(element: json_lists, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_group_array(json_array({compiler.process(element.clauses, **options)}))"


@compiles(json_lists, "postgresql")
def _postgres(element: json_lists, compiler: SQLCompiler, **options: Any) -> str:
    return f"CAST(json_agg(json_build_array({compiler.process(element.clauses, **options)})) AS TEXT)"
