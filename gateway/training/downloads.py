"""Signed links to the two files of an external checkpoint: each is for one file of one tenant, and for a short time."""

import base64
import hmac
import time
from dataclasses import dataclass

import orjson

from loragate.adapter_store.auth.secret_key import derive_key
from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.gateway.errors import NotFound

LIFETIME_SECONDS = 900
FILES = (CONFIG_FILE, TENSORS_FILE)

_SIGNATURE_BYTES = 32


@dataclass(frozen=True, slots=True)
class Download:
    """A file that a link names."""

    tenant_id: str
    digest: str
    file: str


class DownloadLinks:
    """Makes and reads the tokens of links, with a key that is derived from the secret key."""

    def __init__(self, secret_key: bytes) -> None:
        self._key = derive_key(secret_key, "training downloads")

    def token(self, download: Download, expires_at: int) -> str:
        """Return the token of a link that is valid until then, in Unix time."""
        content = orjson.dumps([download.tenant_id, download.digest, download.file, expires_at])
        return base64.urlsafe_b64encode(self._signature(content) + content).decode().rstrip("=")

    def read(self, token: str) -> Download:
        """Return what a token stands for. Raise NotFound for one that is forged or has expired."""
        try:
            raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
            signature, content = raw[:_SIGNATURE_BYTES], raw[_SIGNATURE_BYTES:]
            if hmac.compare_digest(signature, self._signature(content)):
                tenant_id, digest, file, expires_at = orjson.loads(content)
                if expires_at >= time.time():
                    return Download(tenant_id, digest, file)
        except ValueError:
            pass
        raise NotFound("This link is not valid, or no longer.", code="link_invalid")

    def _signature(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, "sha256")
