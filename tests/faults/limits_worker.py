"""A process that uses up its limits, for tests of several at once: `limits_worker.py REDIS_URL`, started by a line on
stdin.
"""

import asyncio
import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from loragate.adapter_store.auth.principal import Scope, TenantPrincipal
from loragate.adapter_store.limits import Limits, TenantLimits
from loragate.gateway.limits.errors import RateLimited
from loragate.gateway.limits.fallback import LocalShare
from loragate.gateway.limits.limiter import Limiter
from loragate.gateway.limits.metrics import LimitMetrics
from loragate.gateway.limits.operations import SubjectUsage, WindowTotal
from loragate.gateway.limits.redis_backend import RedisBackend
from loragate.gateway.limits.subject import Subject
from loragate.gateway.limits.windows import day_number
from loragate.gateway.resilience.redis import RedisLink

CALLER = TenantPrincipal(
    "tn", "n", 1.0, "key", frozenset({Scope.ALL}), TenantLimits(tokens_per_day=1001), Limits(max_concurrency=5000)
)


class NoTotals:
    async def fetch(self, tenant_id: str, subjects: Sequence[Subject], now: float) -> list[SubjectUsage]:
        return [
            SubjectUsage(each.name, day=WindowTotal(day_number(now), 0)) for each in subjects if "day" in each.limits
        ]


async def main() -> None:
    link = RedisLink(sys.argv[1], budget=30)  # not a test of the budget
    limiter = Limiter(RedisBackend(link), LocalShare(4, NoTotals()), NoTotals(), LimitMetrics(CollectorRegistry()))
    limiter.start()
    sys.stdin.readline()

    async def ask() -> int:
        admitted = 0
        for _ in range(50):
            try:
                lease = await limiter.admit(CALLER, None, 2)
            except RateLimited:
                continue
            admitted += 1
            lease.settle(2)
        return admitted

    print(sum(await asyncio.gather(*(ask() for _ in range(8)))))
    await limiter.close()
    await link.close()


asyncio.run(main())
