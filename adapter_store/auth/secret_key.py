"""The installation's secret keys, and the keys derived from them."""

import hashlib
import hmac
from dataclasses import dataclass, field

_ID_LENGTH = 12  # 48 bits, as hexadecimal digits


@dataclass(frozen=True)
class SecretKeys:
    """What is new is made with the primary secret; what was made with a previous one stays valid.

    During a rotation of replicas, the next secret is among the previous ones until all know it.
    """

    primary: bytes = field(repr=False)
    previous: tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def all(self) -> tuple[bytes, ...]:
        """Return all secrets, the primary one first."""
        return (self.primary, *self.previous)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of all secrets, that of the primary one first."""
        return tuple(secret_id(each) for each in self.all)

    def derive(self, purpose: str) -> tuple[bytes, ...]:
        """Return the keys for one purpose, that of the primary secret first."""
        return tuple(derive_key(each, purpose) for each in self.all)


def derive_key(secret_key: bytes, purpose: str) -> bytes:
    """Return 32 bytes for one purpose: HKDF-SHA256 (RFC 5869) without salt, `purpose` as info."""
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret_key, "sha256")
    return hmac.digest(extracted, f"loragate {purpose}".encode() + b"\x01", "sha256")


def secret_id(secret_key: bytes) -> str:
    """Return the public name of a secret: a short hash of it."""
    return derive_key(secret_key, "secret id").hex()[:_ID_LENGTH]
