"""Import from a hub: fetches the two files of a repository."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE
from loragate.gateway.imports.fetcher import Download, Fetcher
from loragate.gateway.imports.source import HubSource, ImportFailed

_MAX_CONFIG_BYTES = 1 << 20
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')

Files = AsyncIterator[tuple[str, bytes]]


async def hub_files(
    fetcher: Fetcher, hub: str, source: HubSource, limit: int, set_total: Callable[[int | None], None]
) -> Files:
    """Yield pieces of both files with the file's name. Call `set_total` with the size. Raise ImportFailed."""
    for file, max_bytes in ((CONFIG_FILE, min(_MAX_CONFIG_BYTES, limit)), (TENSORS_FILE, limit)):
        async with fetcher.opened(source.url(hub, file)) as download:
            _check(download, source, file)
            if file == TENSORS_FILE:
                set_total(download.size)
            digest = hashlib.sha256()
            async for piece in fetcher.read(download, max_bytes):
                digest.update(piece)
                yield file, piece
            _check_digest(download, digest.hexdigest(), file)


def _check(download: Download, source: HubSource, file: str) -> None:
    status = download.response.status_code
    if status in (401, 403):
        raise ImportFailed(
            "source_denied",
            f"The hub denies access to {source.repository}: check the name, or send a token with access to it.",
        )
    if status == 404:
        raise ImportFailed("source_not_found", f"{source.repository} has no {file} at this commit.")
    if status != 200:
        raise ImportFailed("source_unavailable", f"The hub responded with status {status}; try again later.")
    commit = download.headers.get("x-repo-commit", source.commit)
    if commit != source.commit:
        raise ImportFailed("source_changed", "The hub responded with a different commit than the requested one.")


def _check_digest(download: Download, digest: str, file: str) -> None:
    """Check the file against its SHA-256, which the hub sends for large files."""
    expected = _SHA256.fullmatch(download.headers.get("x-linked-etag", ""))
    if expected is not None and expected[1] != digest:
        raise ImportFailed("source_changed", f"{file} does not match the hub's digest: it was damaged or changed.")
