"""Under which salt a tenant's prompts share what the engine computed of them."""

import hmac

from loragate.adapter_store.secret_key import derive_key


class CacheSalts:
    """HMAC-SHA256 of the tenant's id under a key derived from the secret key: the same in every worker and after a
    restart, and nothing that a tenant could guess of another."""

    def __init__(self, secret_key: bytes) -> None:
        self._key = derive_key(secret_key, "prefix cache salt")

    def of(self, tenant_id: str) -> bytes:
        """32 bytes."""
        return hmac.digest(self._key, tenant_id.encode(), "sha256")
