"""Who the caller is."""

from typing import Literal

from typing_extensions import TypedDict

from loragate.gateway.objects.admin import Scope


class OwnTenant(TypedDict):
    """The tenant that a key belongs to."""

    id: str
    name: str


class Caller(TypedDict):
    """What a key is good for. The operator has no tenant, no key id and no scopes."""

    object: Literal["caller"]
    role: Literal["operator", "tenant"]
    tenant: OwnTenant | None
    key_id: str | None
    scopes: list[Scope]
