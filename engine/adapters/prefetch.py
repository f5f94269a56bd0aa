"""Prefetching of adapters to the engine's disk before they are requested, one after the other."""

import asyncio
from collections.abc import Iterable
from typing import Any

from loragate.engine.adapters.files import AdapterFiles
from loragate.engine.sequence.request import AdapterKey


class Prefetch:
    """The adapters that each session wants prefetched. Runs on the event loop.

    A session's list ends with it; fetched files stay like any others.
    """

    def __init__(self, files: AdapterFiles[Any]) -> None:
        self._files = files
        self._wanted: dict[int, tuple[AdapterKey, ...]] = {}
        self._fetching: asyncio.Task[None] | None = None

    def request(self, session_id: int, keys: Iterable[AdapterKey]) -> None:
        """Replace the list of this session."""
        self._wanted[session_id] = tuple(keys)
        self._protect()
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch(), name="prefetch")

    def discard(self, session_id: int) -> None:
        """Discard the list of a session that ended."""
        if self._wanted.pop(session_id, None) is not None:
            self._protect()

    def _protect(self) -> None:
        self._files.protect({key for keys in self._wanted.values() for key in keys})

    async def _fetch(self) -> None:
        """Fetch what is wanted, including what is added in the meantime; each adapter is tried once."""
        tried: set[AdapterKey] = set()
        while missing := [key for keys in self._wanted.values() for key in keys if key not in tried]:
            tried.add(missing[0])
            await self._files.fetch_ahead(missing[0])
