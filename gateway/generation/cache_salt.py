"""The salt that separates tenants in the engine's prefix cache."""

import hmac
from functools import lru_cache

from loragate.adapter_store.auth.secret_key import derive_key

_MAX_TENANTS = 10_000


class CacheSalts:
    """The HMAC-SHA256 of the tenant's id under a key derived from the secret key. It is the same in every worker and
    after a restart, and no tenant can guess the salt of another."""

    def __init__(self, secret_key: bytes) -> None:
        self._key = derive_key(secret_key, "prefix cache salt")
        self.of = lru_cache(maxsize=_MAX_TENANTS)(self._of)
        """Returns the salt of a tenant's id, 32 bytes."""

    def _of(self, tenant_id: str) -> bytes:
        return hmac.digest(self._key, tenant_id.encode(), "sha256")
