"""API keys as text, `lg-<public id>-<secret>`, and as the keyed hashes that are stored.

The last six characters of a secret are a checksum, so that invented keys can be rejected without a query. The checksum
is keyed: knowing the format does not suffice to compute one. Keys from before the checksum have shorter secrets and
stay valid.
"""

import hmac
from enum import Enum, auto
from typing import NamedTuple

from loragate.adapter_store.auth.secret_key import SecretKeys
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.ids import ALPHABET, is_base62, random_base62

MAX_KEY_LENGTH = 256  # longer input is rejected before any work
MIN_ADMIN_KEY_LENGTH = 24
_PREFIX = "lg"
_PUBLIC_LENGTH = 16  # 95 bits
_SECRET_LENGTH = 32  # 190 bits, without the checksum
_CHECKSUM_LENGTH = 6  # 35 bits
_CHECKED_KEY_LENGTH = len(f"{_PREFIX}--") + _PUBLIC_LENGTH + _SECRET_LENGTH + _CHECKSUM_LENGTH
CHECKSUM_KEY_LENGTH = 32


class KeyText(NamedTuple):
    public_id: str
    whole: str


class KeyHasher:
    """HMAC-SHA256 with a pepper derived from a secret key: a stolen database reveals no key.

    New hashes are made with the primary secret, whose id is `primary_id`.
    """

    def __init__(self, secrets: SecretKeys) -> None:
        self._peppers = dict(zip(secrets.ids, secrets.derive("api key pepper"), strict=True))
        self.primary_id = secrets.ids[0]

    def hash(self, key: str) -> bytes:
        """Return the key's hash, 32 bytes."""
        return self._hash(key, self.primary_id)

    def matches(self, key: str, stored: bytes, made_with: str | None = None) -> bool:
        """Return whether the hash is the key's. `made_with` is the id of the secret that it was made with, or None if
        that is unknown."""
        candidates = self._peppers if made_with is None else {made_with} & self._peppers.keys()
        return any(hmac.compare_digest(self._hash(key, candidate), stored) for candidate in candidates)

    def _hash(self, key: str, made_with: str) -> bytes:
        return hmac.digest(self._peppers[made_with], key.encode(), "sha256")


class Plausibility(Enum):
    """The validity of a key as far as its text alone shows it."""

    NONE = auto()  # it is no key
    UNKNOWN = auto()  # it may be an admin key, or a key without a checksum
    CHECKED = auto()  # it is, or was, a key


class KeyFormat:
    """Makes keys with checksums, and checks them."""

    def __init__(self, checksum_key: bytes) -> None:
        self._checksum_key = checksum_key

    def new_key(self) -> KeyText:
        public_id = random_base62(_PUBLIC_LENGTH)
        start = f"{_PREFIX}-{public_id}-{random_base62(_SECRET_LENGTH)}"
        return KeyText(public_id, start + self._checksum(start))

    def check(self, key: str) -> Plausibility:
        """Return what the text of a key says about it, without a query."""
        if not is_credential(key):
            return Plausibility.NONE
        if public_id_of(key) is not None and len(key) == _CHECKED_KEY_LENGTH:
            start, checksum = key[:-_CHECKSUM_LENGTH], key[-_CHECKSUM_LENGTH:]
            right = hmac.compare_digest(checksum, self._checksum(start))
            return Plausibility.CHECKED if right else Plausibility.NONE
        return Plausibility.UNKNOWN if len(key) >= MIN_ADMIN_KEY_LENGTH else Plausibility.NONE

    def _checksum(self, start: str) -> str:
        number = int.from_bytes(hmac.digest(self._checksum_key, start.encode(), "sha256")[:8])
        return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(_CHECKSUM_LENGTH))


def is_credential(text: str) -> bool:
    """Return whether the text can be hashed and compared with what is stored."""
    return 0 < len(text) <= MAX_KEY_LENGTH and text.isprintable()


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
