"""Following a registry of engines: those that have a lease join the fleet, those that gave it back leave."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Protocol

from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.fleet import Fleet
from loragate.engine.link_security import LinkTls, check_target

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0


class Lease(Protocol):
    """An engine in the registry. `machine` is the only one that can reach it, None if any can."""

    @property
    def id(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def machine(self) -> str | None: ...

    @property
    def certificate_name(self) -> str | None: ...

    @property
    def expired(self) -> bool: ...


class RegistryFollower:
    """Keeps a fleet at the engines that were configured and those that are registered. One per fleet.

    While the registry cannot be read, or leases could not be renewed, engines that respond stay in use: the registry
    says where engines are, their sessions say whether they run.
    """

    def __init__(
        self,
        fleet: Fleet,
        configured: Sequence[EngineAddress],
        read: Callable[[], Awaitable[Iterable[Lease]]],
        tls: LinkTls | None = None,
    ) -> None:
        """`tls` has the certificates of the link: without it, engines on other machines are not used."""
        self._fleet = fleet
        self._configured = configured
        self._read = read
        self._tls = tls
        self._machine = socket.gethostname()
        self._problems: set[str] = set()  # of the last time, which are logged already

    async def run(self, every: float = POLL_SECONDS) -> None:
        """Follow the registry until cancelled."""
        while True:
            problems: set[str] = set()
            try:
                leases = list(await self._read())
            except Exception as error:
                problems.add(f"the registry of engines cannot be read: {error}")
            else:
                await self._fleet.update([*self._configured, *self._usable(leases, problems)])
            for each in problems - self._problems:
                log.warning("%s", each)
            self._problems = problems
            await asyncio.sleep(every)

    def _usable(self, leases: Iterable[Lease], problems: set[str]) -> Iterator[EngineAddress]:
        """Yield the registered engines that this process can use beside the configured ones."""
        ids = {each.id for each in self._configured}
        targets = {each.target for each in self._configured}
        responding = {member.id for member in self._fleet.ready_members}
        for lease in leases:
            if lease.id in ids or lease.target in targets or lease.machine not in (None, self._machine):
                continue
            if lease.expired and lease.id not in responding:
                continue
            try:
                check_target(lease.target, self._tls)
            except ValueError as error:
                problems.add(f"engine {lease.id} is not used: {error}")
            else:
                yield EngineAddress(lease.id, lease.target, lease.certificate_name)
