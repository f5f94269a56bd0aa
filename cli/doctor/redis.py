"""Redis: there, soon enough, and not one that forgets."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from loragate.cli.doctor.clock import clock_finding
from loragate.cli.doctor.finding import Finding, fail, ok, warn
from loragate.cli.settings.model import Settings

_SECONDS = 2.0
_PINGS = 5
_BUDGET_SECONDS = 0.05  # what a request waits for Redis at most
_LEAST_VERSION = 7


def check_redis(settings: Settings) -> list[Finding]:
    """Needed for more than one gateway process."""
    processes = settings.workers * settings.replicas
    if settings.redis_url is None:
        if processes > 1:
            found = f"not configured, for {processes} gateway processes (LORAGATE_WORKERS × LORAGATE_REPLICAS)"
            return [fail("Redis", found, "they share their limits there: set LORAGATE_REDIS_URL")]
        return [ok("Redis", "not configured; one gateway process needs none")]
    try:
        with closing(_client(settings.redis_url)) as redis:
            return _look_at(redis)
    except (RedisError, ValueError, OSError) as error:
        return [fail("Redis", f"does not answer: {error}", "start it, or correct LORAGATE_REDIS_URL")]


def _client(url: str) -> "Redis":
    return Redis.from_url(url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS, retry=Retry(NoBackoff(), 0))


def _look_at(redis: "Redis") -> list[Finding]:
    redis.ping()
    times = sorted(_timed_ping(redis) for _ in range(_PINGS))
    began = time.time()
    seconds, microseconds = redis.time()
    clock = clock_finding("Redis", seconds + microseconds / 1e6 - (began + time.time()) / 2)
    return [redis_finding(redis.info(), times[_PINGS // 2]), clock]


def _timed_ping(redis: "Redis") -> float:
    began = time.monotonic()
    redis.ping()
    return time.monotonic() - began


def redis_finding(info: Mapping[str, Any], seconds: float) -> Finding:
    """`info` is INFO's answer, `seconds` what a ping takes."""
    found = f"{info['redis_version']}, {1000 * seconds:.1f} ms away"
    if int(str(info["redis_version"]).split(".")[0]) < _LEAST_VERSION:
        return fail("Redis", found, f"limits need version {_LEAST_VERSION} or newer")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        advice = "it forgets limits when its memory is full: set maxmemory-policy to noeviction"
        return warn("Redis", f"{found}, maxmemory-policy {policy}", advice)
    if seconds > _BUDGET_SECONDS:
        advice = (
            "farther than the 50 ms that requests wait for it: each process would hold its share of the limits alone"
        )
        return warn("Redis", found, advice)
    return ok("Redis", found)
