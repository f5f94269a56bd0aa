"""Operators by OpenID Connect: signed tokens of one issuer, for one audience, with a claim that marks operators."""

import time
from collections.abc import Mapping
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwt import JWTClaimsRegistry

from loragate.adapter_store.auth.principal import AdminPrincipal
from loragate.adapter_store.timestamps import SteadyTime
from loragate.gateway.auth.issuer_keys import IssuerKeys, KeysUnavailable
from loragate.gateway.config.oidc import OidcConfig
from loragate.gateway.errors import Forbidden, Unavailable

# Only signatures that the issuer alone can make: not `none`, and not HMAC, which would use a public key as the secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_CLOCK_SKEW_SECONDS = 30
_MAX_SUBJECT_LENGTH = 255  # OpenID Connect Core 1.0, section 2


class OidcOperators:
    """One per process."""

    def __init__(self, config: OidcConfig) -> None:
        self._config = config
        self._keys = IssuerKeys(config.issuer)
        self._time = SteadyTime()
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
        """Return the operator that the token stands for; None for an invalid token.

        Raise Forbidden for a valid token of a user who is not an administrator, and Unavailable if the issuer's keys
        cannot be fetched.
        """
        try:
            key_id = jws.extract_compact(token.encode()).headers().get("kid")
            keys = await self._keys.get(key_id)
            claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
            self._registry.validate(claims)
        except KeysUnavailable:
            raise Unavailable("The identity provider is unavailable at the moment.") from None
        except (JoseError, ValueError):
            return None
        return self._administrator(claims)

    def _administrator(self, claims: Mapping[str, Any]) -> AdminPrincipal | None:
        subject: str = claims["sub"]
        if not 1 <= len(subject) <= _MAX_SUBJECT_LENGTH or not subject.isprintable():
            return None
        claim = _claim(claims, self._config.admin_claim)
        if self._config.admin_value not in (claim if isinstance(claim, list) else [claim]):
            raise Forbidden("Your account is not an administrator account here.", code="not_an_administrator")
        return AdminPrincipal(subject)

    def _now(self) -> int:
        """Return the time. Setting the clock back does not revive expired tokens."""
        return int(self._time.now(time.time()))


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return a claim by its name, which may contain dots, or by its path."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
