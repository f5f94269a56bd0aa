"""Bodies of the operator's routes. The store checks the values."""

from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, StringConstraints

from loragate.adapter_store.signatures.config import MAX_SIGNERS
from loragate.gateway.schemas.resources.limits import LimitsBody, TenantLimitsBody
from loragate.prompts.bodies import Body

Text = Annotated[str, StringConstraints(max_length=1000)]


def _time(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("give the time as a string in RFC 3339 format")
    return value


Time = Annotated[AwareDatetime, Field(strict=False), BeforeValidator(_time)]  # RFC 3339


Signers = Annotated[list[Text], Field(max_length=MAX_SIGNERS)]


class TenantCreate(Body):
    """Body of POST /admin/v1/tenants."""

    name: Text
    weight: float = 1.0
    limits: TenantLimitsBody = Field(default_factory=TenantLimitsBody)
    signers: Signers = []  # noqa: RUF012


class TenantPatch(Body):
    """Body of PATCH /admin/v1/tenants/{tenant_id}. What is absent or null stays unchanged; null within `limits` removes
    a limit, and an empty list of `signers` returns the tenant to the server's policy."""

    name: Text | None = None
    weight: float | None = None
    limits: TenantLimitsBody | None = None
    signers: Signers | None = None


class KeyCreate(Body):
    """Body of POST /admin/v1/tenants/{tenant_id}/keys."""

    name: Text = ""
    scopes: Annotated[list[Text], Field(max_length=16)] = ["all"]  # noqa: RUF012
    expires_at: Time | None = None
    limits: LimitsBody = Field(default_factory=LimitsBody)


class AdminKeyCreate(Body):
    """Body of POST /admin/v1/admin-keys."""

    name: Text
    expires_at: Time | None = None


class KeyRotate(Body):
    """Body of POST /admin/v1/keys/{key_id}/rotate."""

    grace_seconds: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
