"""Adapters that clients want on the engine's disk before anybody asks for them; fetched one after the other."""

import asyncio
import logging
from collections.abc import Iterable

from loragate.engine.adapters.files import AdapterFiles, AdapterUnavailable
from loragate.engine.sequence.request import AdapterKey

log = logging.getLogger(__name__)


class Prefetch:
    """Lives on the event loop. A session's list ends with it; what was fetched stays, as any other files do."""

    def __init__(self, files: AdapterFiles) -> None:
        self._files = files
        self._wanted: dict[int, tuple[AdapterKey, ...]] = {}
        self._fetching: asyncio.Task[None] | None = None

    def want(self, session_id: int, keys: Iterable[AdapterKey]) -> None:
        """In place of what this session wanted before."""
        self._wanted[session_id] = tuple(keys)
        self._keep()
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch(), name="prefetch")

    def forget(self, session_id: int) -> None:
        """The session is over."""
        if self._wanted.pop(session_id, None) is not None:
            self._keep()

    def _keep(self) -> None:
        self._files.keep({key for keys in self._wanted.values() for key in keys})

    async def _fetch(self) -> None:
        """What is wanted when it begins, and what was wanted meanwhile; each is tried once."""
        tried: set[AdapterKey] = set()
        while missing := [key for keys in self._wanted.values() for key in keys if key not in tried]:
            tried.add(missing[0])
            try:
                await self._files.fetch(missing[0])
            except AdapterUnavailable as error:
                log.warning("adapter %s cannot be fetched ahead of time: %s", missing[0].digest, error)
