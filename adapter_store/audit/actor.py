"""Who acts, for the audit log."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Actor:
    """`name` is `admin_key`, `oidc:<subject>`, `api_key:<id>` or `system`; `request_id` is "" outside of requests."""

    name: str
    request_id: str = ""


SYSTEM = Actor("system")
"""Whoever may start programs on this machine: set-up, the demo."""
