"""Who has signed in."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Caller:
    """What `/v1/whoami` says of a key. `tenant_id` is None for the operator."""

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
        """Whether the key opens what this scope is for; the operator has no tenants' scopes but `admin`."""
        if self.is_operator:
            return scope == "admin"
        return scope in self.scopes or ("all" in self.scopes and scope != "admin")


def caller_of(document: dict[str, Any]) -> Caller:
    """Of `/v1/whoami`'s answer."""
    tenant = document["tenant"] or {"id": None, "name": ""}
    return Caller(tenant["id"], tenant["name"], document["key_id"], frozenset(document["scopes"]))
