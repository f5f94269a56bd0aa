"""The two files of a hub's repository, and no others."""

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
    fetcher: Fetcher, hub: str, source: HubSource, limit: int, announce: Callable[[int | None], None]
) -> Files:
    """Pieces of both files, each with its file's name. `announce` hears how large they are. Raises ImportFailed."""
    for file, most in ((CONFIG_FILE, min(_MAX_CONFIG_BYTES, limit)), (TENSORS_FILE, limit)):
        async with fetcher.opened(source.url(hub, file)) as download:
            _check(download, source, file)
            if file == TENSORS_FILE:
                announce(download.size)
            digest = hashlib.sha256()
            async for piece in fetcher.read(download, most):
                digest.update(piece)
                yield file, piece
            _check_digest(download, digest.hexdigest(), file)


def _check(download: Download, source: HubSource, file: str) -> None:
    status = download.response.status_code
    if status in (401, 403):
        raise ImportFailed(
            "source_denied",
            f"The hub does not show {source.repository} to us: check its name, or send a token that may read it.",
        )
    if status == 404:
        raise ImportFailed("source_not_found", f"{source.repository} has no {file} at this commit.")
    if status != 200:
        raise ImportFailed("source_unavailable", f"The hub answered with status {status}; try again later.")
    commit = download.headers.get("x-repo-commit", source.commit)
    if commit != source.commit:
        raise ImportFailed("source_changed", "The hub answered with another commit than the one asked for.")


def _check_digest(download: Download, digest: str, file: str) -> None:
    """Large files come with their SHA-256."""
    said = _SHA256.fullmatch(download.headers.get("x-linked-etag", ""))
    if said is not None and said[1] != digest:
        raise ImportFailed("source_changed", f"{file} is not what the hub says it is: it came damaged, or was changed.")
