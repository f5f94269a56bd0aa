"""An OpenID provider's public keys, fetched by OpenID Connect Discovery 1.0 and renewed as they rotate."""

import asyncio
import logging
from typing import Any

import httpx
import orjson
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from loragate.gateway.config.oidc import check_provider_url
from loragate.gateway.resilience.clock import elapsed

log = logging.getLogger(__name__)

_FRESH_SECONDS = 300.0  # then they are fetched again at their next use
_KEPT_SECONDS = 3600.0  # a key that the provider withdrew counts no longer than this, whatever fails
_PAUSE_SECONDS = 10.0  # between two attempts, however many tokens name unknown keys
_TIMEOUT = httpx.Timeout(5.0)
_MOST_BYTES = 256 << 10
_SYMMETRIC = "oct"  # whoever could check a token with such a key could also make one


class KeysUnknown(Exception):
    """The provider could not be asked, and what it said last is too old."""


class IssuerKeys:
    """One per process; callers share one request."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: KeySet | None = None
        self._fetched_at = self._tried_at = -_KEPT_SECONDS + elapsed() - _PAUSE_SECONDS
        self._one_at_a_time = asyncio.Lock()

    async def holding(self, key_id: str | None) -> KeySet:
        """The provider's keys, fetched anew where `key_id` is not among those known. Raises KeysUnknown."""
        if self._needs(key_id):
            async with self._one_at_a_time:
                if self._needs(key_id):
                    await self._renew()
        if self._keys is None or elapsed() - self._fetched_at >= _KEPT_SECONDS:
            raise KeysUnknown
        return self._keys

    def _needs(self, key_id: str | None) -> bool:
        if elapsed() - self._tried_at < _PAUSE_SECONDS:
            return False
        if self._keys is None or elapsed() - self._fetched_at >= _FRESH_SECONDS:
            return True
        return key_id is not None and all(key.kid != key_id for key in self._keys)

    async def _renew(self) -> None:
        self._tried_at = elapsed()
        try:
            # In a thread: making a client reads the certificates of all authorities.
            self._keys = await asyncio.to_thread(self._fetched)
            self._fetched_at = self._tried_at
        except (httpx.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
            log.warning("the identity provider's keys cannot be fetched: %s", type(error).__name__)

    def _fetched(self) -> KeySet:
        with httpx.Client(timeout=_TIMEOUT, follow_redirects=False) as http:
            about = _json(http, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            if about["issuer"] != self._issuer:
                raise ValueError("another issuer answers")
            check_provider_url("jwks_uri", about["jwks_uri"])
            keys = _json(http, about["jwks_uri"])["keys"]
        return KeySet.import_key_set({"keys": [key for key in keys if key.get("kty") != _SYMMETRIC]})


def _json(http: httpx.Client, url: str) -> Any:
    body = bytearray()
    with http.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise ValueError(f"status {response.status_code}")
        for part in response.iter_bytes():
            body += part
            if len(body) > _MOST_BYTES:
                raise ValueError("the answer is too long")
    return orjson.loads(body)
