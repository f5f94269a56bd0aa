"""The identity provider for operators."""

from dataclasses import dataclass
from urllib.parse import urlsplit

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """A token is valid when `issuer` made it for `audience` and its claim `admin_claim` is, or contains, `admin_value`.

    Without an issuer, OpenID Connect is off.
    """

    issuer: str = ""
    audience: str = ""
    admin_value: str = ""
    admin_claim: str = "groups"  # or a path such as "realm_access.roles"

    def __post_init__(self) -> None:
        if not self.issuer:
            return
        check_provider_url("oidc.issuer", self.issuer)
        for name in ("audience", "admin_claim", "admin_value"):
            if not getattr(self, name):
                raise ValueError(f"oidc.{name} must not be empty")


def check_provider_url(name: str, url: str) -> None:
    """Raise ValueError unless the connection to the URL is protected against tampering."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    if not safe or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"{name} must be of the form https://host/path")
