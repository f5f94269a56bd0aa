"""The signed-in caller."""

from dataclasses import dataclass
from typing import Any

_NOT_IN_ALL = ("admin", "export")


@dataclass(frozen=True)
class Caller:
    """The owner of a key according to `/v1/whoami`. `tenant_id` is None for the operator."""

    tenant_id: str | None
    tenant_name: str
    key_id: str | None
    scopes: frozenset[str]

    @property
    def is_operator(self) -> bool:
        return self.tenant_id is None

    @property
    def name(self) -> str:
        return "Operator" if self.is_operator else self.tenant_name

    def may(self, scope: str) -> bool:
        """Return whether the key has this scope. The operator has none of the tenants' scopes except `admin`."""
        if self.is_operator:
            return scope == "admin"
        return scope in self.scopes or ("all" in self.scopes and scope not in _NOT_IN_ALL)


def caller_from(document: dict[str, Any]) -> Caller:
    """Return the caller from a `/v1/whoami` response."""
    tenant = document["tenant"] or {"id": None, "name": ""}
    return Caller(tenant["id"], tenant["name"], document["key_id"], frozenset(document["scopes"]))
