"""Why something that ran for a tenant ended without a result."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """As the error envelope says it."""

    code: str
    message: str
    param: str | None = None
