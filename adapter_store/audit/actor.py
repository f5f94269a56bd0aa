"""Actors of the audit log."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Actor:
    """`name` is `admin_key`, `admin_key:<id>`, `oidc:<subject>`, `api_key:<id>` or `system`; `request_id` is "" outside
    of requests."""

    name: str
    request_id: str = ""


SYSTEM = Actor("system")
"""Programs that the operator starts on this machine, such as set-up and the demo."""
