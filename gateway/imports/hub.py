"""Import from a hub: fetches the files of a repository."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Sequence

from loragate.adapter_store.blobs.blobs import TENSORS_FILE
from loragate.gateway.imports.fetcher import Download, Fetcher
from loragate.gateway.imports.source import HubSource, ImportFailed, SourceFile

_NOT_FOUND = 404
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')

Files = AsyncIterator[tuple[str, bytes]]


async def hub_files(
    fetcher: Fetcher, hub: str, source: HubSource, files: Sequence[SourceFile], set_total: Callable[[int | None], None]
) -> Files:
    """Yield pieces of the files with the file's name. Call `set_total` with the size. Raise ImportFailed."""
    for file in files:
        async with fetcher.opened(source.url(hub, file.name)) as download:
            if file.optional and download.response.status_code == _NOT_FOUND:
                continue
            _check(download, source, file.name)
            if file.name == TENSORS_FILE:
                set_total(download.size)
            digest = hashlib.sha256()
            async for piece in fetcher.read(download, file.max_bytes):
                digest.update(piece)
                yield file.name, piece
            _check_digest(download, digest.hexdigest(), file.name)


def _check(download: Download, source: HubSource, file: str) -> None:
    status = download.response.status_code
    if status in (401, 403):
        raise ImportFailed(
            "source_denied",
            f"The hub denies access to {source.repository}: check the name, or send a token with access to it.",
        )
    if status == _NOT_FOUND:
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
