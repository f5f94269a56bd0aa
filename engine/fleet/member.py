"""One engine of a fleet, as one process sees it."""

import asyncio

from loragate.engine.client.client import EngineClient
from loragate.engine.fleet.addresses import EngineAddress
from loragate.engine.fleet.placement import Candidate
from loragate.v1 import engine_pb2 as pb


class Member:
    """An engine's client, and what this process knows of the engine."""

    def __init__(self, address: EngineAddress, client: EngineClient) -> None:
        self.id = address.id
        self.address = address
        self.client = client
        self.manifest: pb.Manifest | None = None  # of the running engine, once the fleet uses it
        self.rejection: str | None = None  # why the fleet does not use it
        self.requests = 0  # of this process, on this engine
        self.idle = asyncio.Event()  # there are none
        self.idle.set()
        self._load: pb.Load | None = None
        self._queue_seconds = 0.0
        self._sent = 0  # requests since the last load report

    @property
    def ready(self) -> bool:
        """Whether it can be sent requests."""
        return self.manifest is not None and self.client.ready

    @property
    def state(self) -> str:
        """ "ok", or why it cannot be sent requests."""
        return "ok" if self.ready else self.rejection or "not connected"

    def begin(self) -> None:
        """Count a request that is sent to it."""
        self.requests += 1
        self._sent += 1
        self.idle.clear()

    def end(self) -> None:
        """Count the end of a request."""
        self.requests -= 1
        if not self.requests:
            self.idle.set()

    def candidate(self) -> Candidate:
        """Return its load, as placement sees it."""
        load = self.client.load
        if load is not self._load:
            self._load, self._sent = load, 0
            self._queue_seconds = sum(queue.seconds for queue in load.tenants) if load is not None else 0.0
        expected = self._sent * load.request_seconds if load is not None else 0.0
        return Candidate(self.id, self._queue_seconds + expected, self.requests)
