"""The SHA-256 of a whole file."""

import hashlib
from typing import BinaryIO

_READ_BYTES = 1 << 20


def sha256_digest(file: BinaryIO) -> bytes:
    """Return the SHA-256 digest of the file's whole content. Call it in a thread."""
    file.seek(0)
    digest = hashlib.sha256()
    while part := file.read(_READ_BYTES):
        digest.update(part)
    return digest.digest()
