"""`loragate engine` with an address to advertise: starts the engine, and holds its lease in the registry while it runs.

The engine's own process knows neither the registry nor the database.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pydantic import SecretStr

from loragate.adapter_store.database.database import Database
from loragate.adapter_store.errors import Conflict, StoreError
from loragate.adapter_store.fleet.engine_leases import RENEW_SECONDS, EngineLease, EngineLeases
from loragate.adapter_store.ids import random_base62
from loragate.cli.data_dir.preparation import engine_secrets
from loragate.cli.errors import BAD_SETTING, CliError
from loragate.cli.settings.environment import child_environment
from loragate.cli.settings.model import Settings
from loragate.cli.supervisor.child import first_completed
from loragate.cli.supervisor.program import Program, kill, our_command, spawn
from loragate.cli.supervisor.stop_signals import StopSignals, stop_signals
from loragate.engine.client.calls import EngineCalls
from loragate.engine.client.errors import EngineUnavailable
from loragate.engine.fleet.addresses import EngineAddress, engine_id_of
from loragate.engine.fleet.registry import POLL_SECONDS
from loragate.engine.link_security import check_target, is_local
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_SETTINGS = (
    "log_format",
    "model",
    "data_dir",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "engine",
    "engine_secret",
    "previous_engine_secrets",
)
_NOTICED_SECONDS = POLL_SECONDS + 1.0  # after which every gateway has read that a lease was given back
_POLL_SECONDS = 0.25
_STARTING_SECONDS = 0.5
_KILL_SECONDS = 10.0


async def run_registered(settings: Settings) -> int:
    """Run the engine until it ends or a signal stops it; return its exit status. Raise CliError.

    A first signal gives the lease back, so that no more requests are sent, and ends the engine once it is idle or
    `drain_seconds` have passed. A second one ends it at once.
    """
    address = _address(settings)
    with stop_signals() as signals:
        process = await spawn(_program(settings))
        try:
            async with _calls(settings, address) as calls, _leases(settings) as leases:
                holder = LeaseHolder(leases, calls, address)
                await _hold(holder, process, signals)
                await holder.give_back()
                if process.returncode is None:
                    await _drain(calls, settings.drain_seconds, signals)
        finally:
            await _stop(process, signals)
    return 0 if signals.requested.is_set() else process.returncode or 0


async def _hold(holder: "LeaseHolder", process: asyncio.subprocess.Process, signals: StopSignals) -> None:
    """Hold the lease until the engine ends, a signal comes, or the lease is denied, which raises CliError."""
    holding = asyncio.create_task(holder.run())
    await first_completed(process.wait(), signals.requested.wait(), asyncio.wait([holding]))
    if holding.done():
        holding.result()
    holding.cancel()
    await asyncio.wait([holding])


class LeaseHolder:
    """Holds the lease of one engine. An engine that does not respond loses it."""

    def __init__(self, leases: EngineLeases, calls: EngineCalls, address: EngineAddress) -> None:
        self._leases = leases
        self._calls = calls
        self._address = address
        self._machine = socket.gethostname() if is_local(address.target) else None
        self._holder = random_base62(16)
        self._manifest: pb.Manifest | None = None
        self._problem = ""

    async def run(self) -> None:
        """Renew the lease until cancelled. Raise CliError if the engine may not have it."""
        while True:
            problem = ""
            try:
                await self.renew()
            except EngineUnavailable as error:
                problem = "" if self._manifest is None else f"the lease of engine {self._address.id} ends: {error}"
            except Conflict as error:
                raise CliError(error.message, BAD_SETTING) from None
            except StoreError as error:
                problem = f"the lease of engine {self._address.id} cannot be renewed: {error.message}"
            if problem and problem != self._problem:
                log.warning("%s", problem)
            self._problem = problem
            await asyncio.sleep(_STARTING_SECONDS if self._manifest is None else RENEW_SECONDS)

    async def renew(self) -> None:
        """Ask the engine for its load, and renew the lease. Raise EngineUnavailable, Conflict, StoreError."""
        self._manifest = self._manifest or await self._calls.describe()
        stats = await self._calls.stats()
        lease = EngineLease(
            id=self._address.id,
            target=self._address.target,
            machine=self._machine,
            certificate_name=self._address.certificate_name,
            base_digest=self._manifest.base_digest,
            adapter_slots=self._manifest.adapter_slots,
            running=stats.running,
            waiting=stats.waiting,
        )
        await self._leases.renew(lease, self._holder)

    async def give_back(self) -> None:
        """End the lease, so that gateways send no more requests."""
        try:
            await self._leases.give_back(self._address.id, self._holder)
        except StoreError as error:
            log.warning("the lease of engine %s could not be given back: %s", self._address.id, error.message)


def _address(settings: Settings) -> EngineAddress:
    """Return what the engine is registered as. Raise CliError."""
    target = settings.engine.advertise or ""
    try:
        check_target(target, settings.engine_tls)
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
    return EngineAddress(settings.engine.id or engine_id_of(target), target, settings.engine.certificate_name)


def _program(settings: Settings) -> Program:
    """Return the same command without the registration."""
    secret, *previous = (SecretStr(each) for each in engine_secrets(settings))
    alone = replace(settings.engine, advertise=None, id=None, certificate_name=None)
    chosen = settings.model_copy(
        update={"engine": alone, "engine_secret": secret, "previous_engine_secrets": tuple(previous)}
    )
    return Program("engine", our_command("engine"), child_environment(chosen, _SETTINGS))


@asynccontextmanager
async def _calls(settings: Settings, address: EngineAddress) -> AsyncIterator[EngineCalls]:
    """Yield the way in which gateways reach the engine, too."""
    secret, *previous = engine_secrets(settings)
    calls = EngineCalls(
        address.target,
        secret=secret,
        previous_secrets=previous,
        tls=settings.engine_tls,
        certificate_name=address.certificate_name,
    )
    await calls.start()
    try:
        yield calls
    finally:
        await calls.close()


@asynccontextmanager
async def _leases(settings: Settings) -> AsyncIterator[EngineLeases]:
    database = Database(settings.effective_database_url)
    try:
        yield EngineLeases(database)
    finally:
        await database.close()


async def _drain(calls: EngineCalls, seconds: float, signals: StopSignals) -> None:
    """Wait until the engine is idle and no gateway sends more, for at most `seconds`."""

    async def until_idle() -> None:
        await asyncio.sleep(_NOTICED_SECONDS)
        while True:
            try:
                stats = await calls.stats()
            except EngineUnavailable:
                return
            if not stats.running and not stats.waiting:
                return
            await asyncio.sleep(_POLL_SECONDS)

    await first_completed(until_idle(), signals.immediate.wait(), seconds=seconds)


async def _stop(process: asyncio.subprocess.Process, signals: StopSignals) -> None:
    if process.returncode is None:
        process.terminate()
        await first_completed(process.wait(), signals.immediate.wait(), seconds=_KILL_SECONDS)
    if process.returncode is None:
        kill(process)
        await process.wait()
