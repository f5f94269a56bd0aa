"""Responses of the probes."""

from typing import Literal

from typing_extensions import TypedDict


class Health(TypedDict):
    """The process is alive."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """`parts` has "ok", "degraded" or a reason for each part of the server; `degraded` has the reasons why parts are
    degraded."""

    status: Literal["ready", "not ready"]
    parts: dict[str, str]
    degraded: dict[str, str]
