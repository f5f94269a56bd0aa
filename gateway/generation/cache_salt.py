"""Under which salt a tenant's prompts share what the engine computed of them."""

import hmac
from functools import lru_cache

from loragate.adapter_store.auth.secret_key import derive_key

_MOST_TENANTS = 10_000


class CacheSalts:
    """HMAC-SHA256 of the tenant's id under a key derived from the secret key: the same in every worker and after a
    restart, and nothing that a tenant could guess of another."""

    def __init__(self, secret_key: bytes) -> None:
        self._key = derive_key(secret_key, "prefix cache salt")
        self.of = lru_cache(maxsize=_MOST_TENANTS)(self._of)
        """Of a tenant's id, 32 bytes."""

    def _of(self, tenant_id: str) -> bytes:
        return hmac.digest(self._key, tenant_id.encode(), "sha256")
