"""The salt that separates tenants, and their users where configured, in the engine's prefix cache."""

import hmac
from functools import lru_cache

from loragate.adapter_store.auth.secret_key import derive_key

_MAX_KNOWN = 10_000


class CacheSalts:
    """The HMAC-SHA256 of the tenant's id and the user under a key derived from the secret key. It is the same in every
    worker and after a restart, and no tenant can guess the salt of another."""

    def __init__(self, secret_key: bytes) -> None:
        self._key = derive_key(secret_key, "prefix cache salt")
        self.of = lru_cache(maxsize=_MAX_KNOWN)(self._of)
        """Returns the salt of a tenant's id, 32 bytes, or of one of its users."""

    def _of(self, tenant_id: str, user: str | None = None) -> bytes:
        whose = tenant_id if user is None else f"{tenant_id}\n{user}"
        return hmac.digest(self._key, whose.encode(errors="surrogatepass"), "sha256")
