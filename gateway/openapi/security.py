"""Security requirements of a route, as the document describes them."""

from loragate.gateway.dependencies.requirements import (
    Admin,
    AdminOrAnybody,
    Holder,
    Public,
    Requirement,
    TenantAdmin,
    TenantWith,
)

TENANT_KEY, ADMIN_KEY = "tenantKey", "adminKey"

SECURITY_SCHEMES = {
    TENANT_KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "A tenant's key, `lg-<id>-<secret>`. As `x-api-key`, it is accepted, too.",
    },
    ADMIN_KEY: {
        "type": "http",
        "scheme": "bearer",
        "description": "The admin key, or a token of the OpenID Connect provider that the server trusts.",
    },
}


def error_statuses_of(requirement: Requirement) -> tuple[int, ...]:
    """Return the error statuses that checking the requirement may result in."""
    match requirement:
        case Public():
            return ()
        case AdminOrAnybody() | Holder():
            return (401, 500, 503)
        case _:
            return (401, 403, 500, 503)


def security_of(requirement: Requirement) -> list[dict[str, list[str]]]:
    """Return the alternative keys that meet the requirement."""
    match requirement:
        case TenantWith(scopes=scopes):
            return [{TENANT_KEY: [scope.value]} for scope in scopes]
        case Admin():
            return [{ADMIN_KEY: []}]
        case TenantAdmin():
            return [{ADMIN_KEY: []}, {TENANT_KEY: ["admin"]}]
        case AdminOrAnybody():
            return [{}, {ADMIN_KEY: []}]
        case Holder():
            return [{TENANT_KEY: []}, {ADMIN_KEY: []}]
        case _:
            return []


def need_of(requirement: Requirement) -> str:
    """Return a sentence that describes the requirement."""
    match requirement:
        case TenantWith(scopes=scopes):
            return f"Requires a tenant's key with the scope {' or '.join(f'`{scope}`' for scope in scopes)}."
        case Admin():
            return "Requires the admin key."
        case TenantAdmin():
            return "Requires the admin key, or a key of the tenant with the scope `admin`."
        case Holder():
            return "Requires any key."
        case _:
            return "Requires no key."
