"""Operators by OpenID Connect: signed tokens of one issuer, for one audience, with a claim that names operators."""

import time
from collections.abc import Mapping
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwt import JWTClaimsRegistry

from loragate.adapter_store.auth.principal import AdminPrincipal
from loragate.gateway.auth.issuer_keys import IssuerKeys, KeysUnknown
from loragate.gateway.config.oidc import OidcConfig
from loragate.gateway.errors import Forbidden, Unavailable

# Signatures that only the issuer can make: never `none`, never HMAC, under which a public key becomes the secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_CLOCK_SKEW_SECONDS = 30
_LONGEST_SUBJECT = 255  # OpenID Connect Core 1.0, section 2


class OidcOperators:
    """One per process."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        self._keys = IssuerKeys(config.issuer)
        self._latest = 0
        self._registry = JWTClaimsRegistry(
            now=self._now,
            leeway=_CLOCK_SKEW_SECONDS,
            iss={"essential": True, "value": config.issuer},
            aud={"essential": True, "value": config.audience},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )

    async def principal(self, token: str) -> AdminPrincipal | None:
        """Whom the token speaks for; None for a token that does not count.

        Raises Forbidden for a good one of somebody who is no administrator, Unavailable when the issuer's keys
        cannot be had.
        """
        try:
            key_id = jws.extract_compact(token.encode()).headers().get("kid")
            keys = await self._keys.holding(key_id)
            claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
            self._registry.validate(claims)
        except KeysUnknown:
            raise Unavailable("The identity provider cannot be asked at the moment.") from None
        except (JoseError, ValueError):
            return None
        return self._administrator(claims)

    def _administrator(self, claims: Mapping[str, Any]) -> AdminPrincipal | None:
        subject: str = claims["sub"]
        if not 1 <= len(subject) <= _LONGEST_SUBJECT or not subject.isprintable():
            return None
        named = _claim(claims, self._config.admin_claim)
        if self._config.admin_value not in (named if isinstance(named, list) else [named]):
            raise Forbidden("Your account is not an administrator's here.", code="not_an_administrator")
        return AdminPrincipal(subject)

    def _now(self) -> int:
        """Never goes back: a clock that is set back revives no token."""
        self._latest = max(self._latest, int(time.time()))
        return self._latest


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, which may have dots in it, or by its path."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
