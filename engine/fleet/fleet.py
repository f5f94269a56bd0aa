"""The fleet: watches its engines, and runs each request on one of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic

from loragate.engine.client.client import EngineClient
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.client.request import RequestObserver
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.manifest import combined
from loragate.engine.fleet.member import Member
from loragate.engine.fleet.placed_request import PlacedRequest
from loragate.engine.fleet.placement import AdapterId, Placement
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_CONNECT_POLL_SECONDS = 0.01  # while waiting for an engine
_RETRY_SECONDS = 1.0
_PREFIX_TOKENS = 64  # of a prompt, by which it is recognized as the beginning of others

Connect = Callable[[EngineAddress], EngineClient]
Adopt = Callable[[pb.Manifest], Awaitable[bool]]


async def _adopt_any(manifest: pb.Manifest) -> bool:
    return True


class Fleet:
    """The engines that this process sends requests to. One per process."""

    def __init__(
        self,
        addresses: Iterable[EngineAddress],
        connect: Connect,
        *,
        adopt: Adopt = _adopt_any,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a fleet of the engines at these addresses.

        Each time an engine connects, `adopt` is called with the fleet's manifest; the engine is sent requests only once
        that has returned True. All engines serve the same base model: others are rejected while one is in use.
        `changed` is called when an engine can be sent requests, and when it no longer can.
        """
        self._adopt = adopt
        self._changed = changed
        self._connect = connect
        self._members = {each.id: Member(each, connect(each)) for each in addresses}
        self._served_by_former: dict[str, float] = {}  # by engines that have left, in units by tenant
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[asyncio.Task[None], Member] = {}
        self._some_ready = asyncio.Event()
        self.placement = Placement(self)
        self._accepting = asyncio.Lock()  # so that two engines of different base models do not join at once

    @property
    def members(self) -> tuple[Member, ...]:
        """All engines, by id."""
        return tuple(self._members.values())

    @property
    def ready_members(self) -> list[Member]:
        """The engines that can be sent requests."""
        return [member for member in self._members.values() if member.ready]

    @property
    def ready(self) -> bool:
        """Whether an engine can be sent requests."""
        return any(member.ready for member in self._members.values())

    @property
    def manifest(self) -> pb.Manifest | None:
        """What the engines that can be sent requests have in common; None without any."""
        return combined(self._manifests) if self._manifests else None

    @property
    def _manifests(self) -> list[pb.Manifest]:
        return [each.manifest for each in self.ready_members if each.manifest is not None]

    async def start(self) -> None:
        """Start connecting in the background, and return at once."""
        for member in self.members:
            await self._begin(member)

    async def update(self, addresses: Iterable[EngineAddress]) -> None:
        """Use the engines at these addresses from now on. Those that are no longer among them are sent no more
        requests, and are left once the running ones have ended."""
        wanted = {each.id: each for each in addresses}
        for member in self.members:
            if wanted.get(member.id) != member.address:
                del self._members[member.id]
                self._leave_when_idle(member)
        for id_ in wanted.keys() - self._members.keys():
            member = self._members[id_] = Member(wanted[id_], self._connect(wanted[id_]))
            await self._begin(member)

    async def connected(self, patience: float) -> None:
        """Wait until an engine can be sent requests, but at most `patience` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._some_ready.wait()

    async def close(self) -> None:
        """End all sessions, which aborts their requests."""
        tasks, leaving = [*self._watches.values(), *self._leaving], list(self._leaving.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(member.client.close() for member in [*self.members, *leaving]))

    def generate(self, submit: pb.Submit, observer: RequestObserver | None = None) -> PlacedRequest:
        """See `Engine.generate`. If the engine is lost before the first delta, the request runs on another one."""
        return PlacedRequest(submit, observer, self)

    def place(self, submit: pb.Submit, lost_with: set[str]) -> Member:
        """See `Placer.place`."""
        usable = [member for member in self.ready_members if member.id not in lost_with]
        member = usable[0] if len(usable) == 1 else self._choose(submit, usable)
        submit.share.elsewhere = self._served_elsewhere(submit.share.tenant_id, member.id)
        return member

    def home(self, adapter: AdapterId) -> Member | None:
        """Return the engine on which the next request for an adapter would run; None without any."""
        usable = {member.id: member for member in self.ready_members}
        candidates = [member.candidate() for member in usable.values()]
        chosen = self.placement.place(adapter, "", candidates, monotonic())
        return None if chosen is None else usable[chosen]

    def answered(self, submit: pb.Submit, member: Member) -> None:
        """See `Placer.answered`."""
        adapter = _adapter_of(submit)
        if adapter is not None:
            member.note_held(adapter)

    def ended(self, submit: pb.Submit, seconds: float) -> None:
        """See `Placer.ended`."""
        adapter = _adapter_of(submit)
        if adapter is not None and len(self._members) > 1:
            self.placement.record(adapter, seconds * max(1, submit.n), monotonic())

    def holds(self, engine_id: str, adapter: AdapterId) -> bool:
        """See `Holdings.holds`."""
        return adapter in self._members[engine_id].held

    def fetch(self, engine_id: str, adapter: AdapterId) -> None:
        """See `Holdings.fetch`."""
        self._members[engine_id].fetch(adapter)

    def _choose(self, submit: pb.Submit, usable: Sequence[Member]) -> Member:
        candidates = [member.candidate() for member in usable]
        chosen = self.placement.place(_adapter_of(submit), _prefix_of(submit), candidates, monotonic())
        if chosen is None:
            raise EngineUnavailable("no engine is running")
        return self._members[chosen]

    def _served_elsewhere(self, tenant_id: str, engine_id: str) -> float:
        """Return the units that the tenant received from all engines but this one. They only grow."""
        others = (each.client.served.get(tenant_id, 0.0) for each in self.members if each.id != engine_id)
        return sum(others, self._served_by_former.get(tenant_id, 0.0))

    async def _begin(self, member: Member) -> None:
        await member.client.start()
        self._watches[member.id] = asyncio.create_task(self._watch(member), name=f"engine-{member.id}")

    def _leave_when_idle(self, member: Member) -> None:
        self._watches.pop(member.id).cancel()
        if member.manifest is not None:
            self._note_change()
        for tenant_id, units in member.client.served.items():
            self._served_by_former[tenant_id] = self._served_by_former.get(tenant_id, 0.0) + units
        leaving = asyncio.create_task(_leave(member), name=f"leaving-{member.id}")
        self._leaving[leaving] = member
        leaving.add_done_callback(self._leaving.pop)

    async def _watch(self, member: Member) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS if self._some_ready.is_set() else _CONNECT_POLL_SECONDS)
            if not member.client.ready:
                member.rejection = None
                if member.manifest is not None:
                    member.lose()
                    self._note_change()
            elif member.manifest is None:
                if await self._accept(member):
                    self._note_change()
                else:
                    await asyncio.sleep(_RETRY_SECONDS)
            else:
                await member.look_for_fetched()

    async def _accept(self, member: Member) -> bool:
        """Begin to use an engine that has connected; return whether that succeeded."""
        try:
            manifest = await member.client.describe()
        except EngineUnavailable as error:
            log.warning("cannot read the base model of engine %s: %s", member.id, error)
            return False
        async with self._accepting:
            rejection = self._rejection_of(manifest)
            if rejection is not None and rejection != member.rejection:
                log.error("engine %s is not used: %s", member.id, rejection)
            member.rejection = rejection
            if rejection is not None or not await self._adopt(combined([*self._manifests, manifest])):
                return False
            member.manifest = manifest
            return True

    def _rejection_of(self, manifest: pb.Manifest) -> str | None:
        """Return why an engine with this manifest cannot join the engines in use, if it cannot."""
        for other in self._manifests:
            if other.base_digest != manifest.base_digest:
                return (
                    f"it serves the base model {manifest.base_digest}, but the fleet serves {other.base_digest}; "
                    "all engines must serve the same one"
                )
        return None

    def _note_change(self) -> None:
        if self.ready:
            self._some_ready.set()
        else:
            self._some_ready.clear()
        self._changed()


def _adapter_of(submit: pb.Submit) -> AdapterId | None:
    return (submit.adapter.tenant_id, submit.adapter.digest) if submit.adapter.digest else None


def _prefix_of(submit: pb.Submit) -> str:
    """Return what requests have in common whose prompts begin alike and may share cached blocks."""
    return f"{submit.cache_salt.hex()} {submit.prompt_token_ids[:_PREFIX_TOKENS]}"


async def _leave(member: Member) -> None:
    await member.idle.wait()
    await member.client.close()
