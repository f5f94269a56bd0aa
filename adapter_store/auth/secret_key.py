"""The installation's secret key and the keys derived from it."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from loragate.adapter_store.errors import Invalid

FILE_NAME = "secret_key"
_MIN_LENGTH = 16


def load_or_create_secret_key(data_dir: Path, given: str | None) -> bytes:
    """Return the given key, or the one in `data_dir`, which is created (mode 0600) if missing.

    The file's text may be used elsewhere as LORAGATE_SECRET_KEY: both mean the same key.
    """
    if given is not None:
        return _checked(given)
    path = data_dir / FILE_NAME
    if not path.exists():
        _create(path)
    return _checked(path.read_text(encoding="utf-8").strip())


def derive_key(secret_key: bytes, purpose: str) -> bytes:
    """Return 32 bytes for one purpose: HKDF-SHA256 (RFC 5869) without salt, `purpose` as info."""
    extracted = hmac.digest(bytes(hashlib.sha256().digest_size), secret_key, "sha256")
    return hmac.digest(extracted, f"loragate {purpose}".encode() + b"\x01", "sha256")


def _checked(text: str) -> bytes:
    if len(text) < _MIN_LENGTH:
        raise Invalid(f"The secret key must have at least {_MIN_LENGTH} characters.", param="secret_key")
    return text.encode()


def _create(path: Path) -> None:
    """Create the file by linking a complete one, so that simultaneous processes read the same key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
    finally:
        draft.unlink()
