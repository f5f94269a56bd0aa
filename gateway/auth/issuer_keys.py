"""An OpenID provider's public keys, fetched by OpenID Connect Discovery 1.0 and renewed as they rotate."""

import asyncio
import logging
from typing import Any

import httpx
import orjson
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from loragate.adapter_store.timestamps import elapsed
from loragate.gateway.config.oidc import check_provider_url

log = logging.getLogger(__name__)

_FRESH_SECONDS = 300.0  # afterwards they are fetched again at their next use
_MAX_AGE_SECONDS = 3600.0  # a key that the provider withdrew is accepted no longer than this, even if fetching fails
_PAUSE_SECONDS = 10.0  # between two attempts, regardless of how many tokens name unknown keys
_TIMEOUT = httpx.Timeout(5.0)
_MAX_BYTES = 256 << 10
_SYMMETRIC = "oct"  # with such a key, a party that can verify a token can also forge one


class KeysUnavailable(Exception):
    """The provider does not respond, and the keys fetched last are too old."""


class IssuerKeys:
    """One per process. Concurrent callers share one request."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._keys: KeySet | None = None
        self._fetched_at = self._tried_at = -_MAX_AGE_SECONDS + elapsed() - _PAUSE_SECONDS
        self._one_at_a_time = asyncio.Lock()

    async def get(self, key_id: str | None) -> KeySet:
        """Return the provider's keys, fetched again if `key_id` is not among them. Raise KeysUnavailable."""
        if self._needs(key_id):
            async with self._one_at_a_time:
                if self._needs(key_id):
                    await self._renew()
        if self._keys is None or elapsed() - self._fetched_at >= _MAX_AGE_SECONDS:
            raise KeysUnavailable
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
            # In a thread, because creating a client reads the certificates of all authorities.
            self._keys = await asyncio.to_thread(self._fetch)
            self._fetched_at = self._tried_at
        except (httpx.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
            log.warning("cannot fetch the identity provider's keys: %s", type(error).__name__)

    def _fetch(self) -> KeySet:
        with httpx.Client(timeout=_TIMEOUT, follow_redirects=False) as http:
            provider = _json(http, f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            if provider["issuer"] != self._issuer:
                raise ValueError("the response is from another issuer")
            check_provider_url("jwks_uri", provider["jwks_uri"])
            keys = _json(http, provider["jwks_uri"])["keys"]
        return KeySet.import_key_set({"keys": [key for key in keys if key.get("kty") != _SYMMETRIC]})


def _json(http: httpx.Client, url: str) -> Any:
    body = bytearray()
    with http.stream("GET", url) as response:
        if response.status_code != httpx.codes.OK:
            raise ValueError(f"status {response.status_code}")
        for part in response.iter_bytes():
            body += part
            if len(body) > _MAX_BYTES:
                raise ValueError("the response is too long")
    return orjson.loads(body)
