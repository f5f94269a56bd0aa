"""Random identifiers in base62 (0-9, A-Z, a-z): safe in URLs, headers and file names."""

import secrets
import string

ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_ID_LENGTH = 20  # 119 bits


def random_base62(length: int) -> str:
    """Return `length` characters from the system's secure random source, log2(62) ≈ 5.95 bits each."""
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def new_id(prefix: str) -> str:
    """Return an opaque id such as `ad_3kTMd9…`."""
    return f"{prefix}_{random_base62(_ID_LENGTH)}"


def is_base62(text: str) -> bool:
    return bool(text) and all(character in ALPHABET for character in text)
