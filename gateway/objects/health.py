"""Responses of the probes."""

from typing import Literal

from typing_extensions import TypedDict


class Health(TypedDict):
    """This process is alive."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """`parts` has "ok", "degraded" or the reason for each part of the server; `degraded` has the reasons of those."""

    status: Literal["ready", "not ready"]
    parts: dict[str, str]
    degraded: dict[str, str]
