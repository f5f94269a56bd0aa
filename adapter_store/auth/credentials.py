"""API keys as text, `lg-<public id>-<secret>`, and as the keyed hashes that are stored."""

import hmac
from typing import NamedTuple

from loragate.adapter_store.auth.secret_key import derive_key
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.ids import is_base62, random_base62

MAX_KEY_LENGTH = 256  # longer input is rejected before any work
MIN_ADMIN_KEY_LENGTH = 24
_PREFIX = "lg"
_PUBLIC_LENGTH = 16  # 95 bits
_SECRET_LENGTH = 32  # 190 bits


class KeyText(NamedTuple):
    public_id: str
    whole: str


class KeyHasher:
    """HMAC-SHA256 with a pepper derived from the secret key: a stolen database reveals no key."""

    def __init__(self, secret_key: bytes) -> None:
        self._pepper = derive_key(secret_key, "api key pepper")

    def hash(self, key: str) -> bytes:
        """Return the key's hash, 32 bytes."""
        return hmac.digest(self._pepper, key.encode(), "sha256")

    def matches(self, key: str, stored: bytes) -> bool:
        return hmac.compare_digest(self.hash(key), stored)


def new_key_text() -> KeyText:
    public_id = random_base62(_PUBLIC_LENGTH)
    return KeyText(public_id, f"{_PREFIX}-{public_id}-{random_base62(_SECRET_LENGTH)}")


def new_admin_key() -> str:
    return f"{_PREFIX}-admin-{random_base62(_SECRET_LENGTH)}"


def public_id_of(key: str) -> str | None:
    """Return the public id in a tenant's key, or None for any other text."""
    parts = key.split("-")
    if len(parts) == 3 and parts[0] == _PREFIX and is_base62(parts[1]) and is_base62(parts[2]):
        return parts[1]
    return None


def check_admin_key(key: str) -> str:
    """Return the key, or raise Invalid without repeating it."""
    if not MIN_ADMIN_KEY_LENGTH <= len(key) <= MAX_KEY_LENGTH or not key.isprintable() or key != key.strip():
        raise Invalid(
            f"The admin key must be {MIN_ADMIN_KEY_LENGTH} to {MAX_KEY_LENGTH} printable characters without "
            "blanks at the ends.",
            param="admin_key",
        )
    return key
