"""What changes during the chaos run beside the requests, and the texts that are right at any time."""

import asyncio
import random
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from history import Release, Revocation
from running_server import client, ok
from tiny_models import greedy
from tokenizers import Tokenizer

from .chaos_records import LENGTHS
from .conftest import Tiny
from .workers import Tenant

_UNKNOWN = float("inf")


class Texts:
    """The texts of transformers in float32, with PEFT's adapters: the reference of the history."""

    def __init__(self, tiny: Tiny) -> None:
        self._tiny = tiny
        self._tokenizer = Tokenizer.from_file(str(tiny.base / "tokenizer.json"))
        self._tokens: dict[tuple[str | None, tuple[int, ...]], list[int]] = {}

    def __call__(self, content: str | None, question: Hashable) -> str:
        """Return the text of a question, a prompt with a number of tokens; `content` is an adapter's folder."""
        assert isinstance(question, tuple)
        prompt, length = question
        if (content, prompt) not in self._tokens:
            folder = None if content is None else self._tiny.adapters[content]
            self._tokens[content, prompt] = greedy(self._tiny.model, prompt, max(LENGTHS), folder)
        return str(self._tokenizer.decode(self._tokens[content, prompt][:length]))


@dataclass
class Releases:
    """Publishes new versions of one adapter of a tenant, whose contents alternate between `folders`."""

    tenant: Tenant
    adapter: str
    folders: tuple[str, ...]
    tiny: Tiny
    random: random.Random
    attempts: list[tuple[str, float, float, int | None]] = field(default_factory=list)

    async def run(self, stopping: asyncio.Event) -> None:
        """Publish until stopped. A publication may fail, or be done later, while something is being restarted."""
        number = 0
        while not stopping.is_set():
            await asyncio.sleep(self.random.uniform(1, 5))
            number += 1
            folder = self.folders[number % len(self.folders)]
            begun = time.time()
            version = await asyncio.to_thread(self._publish, self.tiny.adapters[folder])
            self.attempts.append((folder, begun, time.time() if version else _UNKNOWN, version))

    def known(self, initial: str) -> list[Release]:
        """Return all versions that exist now; the first one had the content of the folder `initial`."""
        with client(self.tenant.workers.server.base_url, self.tenant.key) as http:
            page = ok(http.get(f"/v1/adapters/{self.adapter}/versions", params={"limit": 100}))
        assert not page["has_more"]
        digests: dict[int, str] = {each["version"]: each["digest"] for each in page["data"]}
        published = {version: (folder, begun, done) for folder, begun, done, version in self.attempts if version}
        contents = {digests[version]: folder for version, (folder, _, _) in published.items()} | {digests[1]: initial}
        times = {version: (begun, done) for version, (_, begun, done) in published.items()} | {1: (0.0, 0.0)}
        return [
            Release(
                tenant_id=self.tenant.id,
                adapter=self.adapter,
                version=version,
                content=contents[digest],
                begun=times.get(version, (0.0, _UNKNOWN))[0],
                done=times.get(version, (0.0, _UNKNOWN))[1],
            )
            for version, digest in digests.items()
            if digest in contents
        ]

    def _publish(self, folder: Path) -> int | None:
        """Return the number of the new version, or None if it is not known whether there is one."""
        names = ("adapter_config.json", "adapter_model.safetensors")
        files = {name: (name, (folder / name).read_bytes()) for name in names}
        try:
            with client(self.tenant.workers.server.base_url, self.tenant.key) as http:
                response = http.post("/v1/adapters", data={"name": self.adapter}, files=files)
        except httpx.TransportError:
            return None
        if response.status_code != 201:
            return None
        document: dict[str, Any] = response.json()
        return int(document["version"]) if document["status"] == "ready" else None


async def revoke(tenant: Tenant) -> Revocation:
    """Revoke the tenant's key, however often that has to be tried."""
    begun = time.time()
    while not await asyncio.to_thread(_revoke, tenant):
        await asyncio.sleep(0.2)
    return Revocation(tenant.key_id, begun, time.time())


def _revoke(tenant: Tenant) -> bool:
    try:
        with tenant.workers.server.admin() as admin:
            return admin.delete(f"/admin/v1/keys/{tenant.key_id}").is_success
    except httpx.TransportError:
        return False
