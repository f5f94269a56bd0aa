"""The pipeline of one tenant to a backend that fails and loses its state."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from loragate.gateway.limits.backend import BackendResponse, BackendUnavailable
from loragate.gateway.limits.memory_backend import MemoryBackend
from loragate.gateway.limits.observed_state import HeldLease
from loragate.gateway.limits.operations import ImportLeases, Operation
from loragate.gateway.limits.tenant_pipeline import TenantPipeline
from tests.gateway.limit_backends import limited


class NoTotals:
    async def fetch(self, tenant_id: str, subjects: Any, now: float) -> list[Any]:
        return []


class FailingBackend(MemoryBackend):
    """Fails from the second import of leases on, until it is repaired."""

    imports = 0
    repaired = False

    async def execute(self, tenant_id: str, incarnation: str, operations: Sequence[Operation]) -> BackendResponse:
        self.imports += any(isinstance(operation, ImportLeases) for operation in operations)
        if self.imports > 1 and not self.repaired:
            raise BackendUnavailable
        return await super().execute(tenant_id, incarnation, operations)


async def test_leases_that_a_failed_call_did_not_restore_are_reported_with_the_next_renewal() -> None:
    """A thousand are restored in four calls, the third of which fails."""
    backend = FailingBackend()
    pipeline = TenantPipeline("tn_a", backend, NoTotals())
    subjects = (limited("tenant", concurrency=1000),)
    for number in range(1000):
        lease = HeldLease(f"lease{number}", subjects, 1, granted_locally=False)
        await pipeline.reserve(lease)
        pipeline.observed.hold(lease)
    backend.discard("tn_a")
    with suppress(BackendUnavailable):
        await pipeline.renew()
    assert len(backend._tenants["tn_a"]._leases) == 512
    backend.repaired = True
    await pipeline.renew()
    assert len(backend._tenants["tn_a"]._leases) == 1000
    another = await pipeline.reserve(HeldLease("another", subjects, 1, granted_locally=False))
    assert another.verdict == "no"
    await pipeline.close()
