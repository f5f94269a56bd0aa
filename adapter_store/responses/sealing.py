"""Sealing: AES-256-GCM under a key that is derived from the installation's secret for one tenant.

A sealed text begins with the id of the secret, so that it can be read after a rotation, while that secret is accepted.
The place of the text (its table, row and column) is authenticated with it: no text can be moved to another row.
"""

import hmac
import os
from functools import cached_property
from typing import Any

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from loragate.adapter_store.auth.secret_key import SecretKeys, secret_id
from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.responses.response import EndUser

_NONCE_BYTES = 12
_ID_BYTES = 6
Tags = dict[str, bytes | None]


class TenantSeal:
    """Seals and opens the JSON of one tenant, and hashes the names of its users."""

    def __init__(self, secret_keys: SecretKeys, tenant_id: str) -> None:
        self._secrets = secret_keys
        self._tenant_id = tenant_id

    @cached_property
    def secret_id(self) -> str:
        """The id of the secret that new texts are sealed with."""
        return secret_id(self._secrets.primary)

    def seal(self, content: Any, place: str) -> bytes:
        """Return the JSON of `content`, sealed for its place."""
        nonce = os.urandom(_NONCE_BYTES)
        cipher = AESGCM(self._keys[self.secret_id])
        return bytes.fromhex(self.secret_id) + nonce + cipher.encrypt(nonce, orjson.dumps(content), place.encode())

    def open(self, sealed: bytes, place: str) -> Any:
        """Return what was sealed for this place. Raise Unavailable if its secret is not accepted any more, or the text
        is damaged."""
        key = self._keys.get(sealed[:_ID_BYTES].hex())
        if key is None:
            raise Unavailable("This was stored under a secret key that the server does not have any more.")
        nonce, text = sealed[_ID_BYTES : _ID_BYTES + _NONCE_BYTES], sealed[_ID_BYTES + _NONCE_BYTES :]
        try:
            return orjson.loads(AESGCM(key).decrypt(nonce, text, place.encode()))
        except InvalidTag:
            raise Unavailable("This was damaged in the database.") from None

    def tags(self, end_user: EndUser) -> Tags:
        """Return the columns by which the data of a tenant's user is found."""
        return {
            "user_tag": self._tag(self._tag_keys[0], "user", end_user.user),
            "safety_tag": self._tag(self._tag_keys[0], "safety_identifier", end_user.safety_identifier),
        }

    def item_tag(self, item_id: str) -> bytes:
        """Return the column by which an item is found."""
        return self.possible_tags("item", item_id)[0]

    def possible_tags(self, kind: str, name: str) -> list[bytes]:
        """Return the hashes that a name of this kind may have, one for each secret, that of the primary one first: a
        `user`, a `safety_identifier`, or the id of an `item`."""
        return [tag for key in self._tag_keys if (tag := self._tag(key, kind, name)) is not None]

    @cached_property
    def _keys(self) -> dict[str, bytes]:
        keys = self._secrets.derive(f"responses of {self._tenant_id}")
        return dict(zip(self._secrets.ids, keys, strict=True))

    @cached_property
    def _tag_keys(self) -> tuple[bytes, ...]:
        return self._secrets.derive(f"users of {self._tenant_id}")

    @staticmethod
    def _tag(key: bytes, kind: str, name: str | None) -> bytes | None:
        return None if name is None else hmac.digest(key, f"{kind}\0{name}".encode(), "sha256")
