"""The check of Redis: reachable, close enough, and not configured to evict keys."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from loragate.cli.doctor.finding import Finding, clock_finding, fail, ok, warn
from loragate.cli.settings.model import Settings

_SECONDS = 2.0
_PINGS = 5
_BUDGET_SECONDS = 0.05  # the longest that a request waits for Redis
_LEAST_VERSION = 7


def check_redis(settings: Settings) -> list[Finding]:
    """Check Redis, which several gateway processes need."""
    processes = settings.workers * settings.replicas
    if settings.redis_url is None:
        if processes > 1:
            found = f"not configured, for {processes} gateway processes (LORAGATE_WORKERS × LORAGATE_REPLICAS)"
            return [fail("Redis", found, "the processes share their limits in Redis: set LORAGATE_REDIS_URL")]
        return [ok("Redis", "not configured; not needed for one gateway process")]
    try:
        with closing(_client(settings.redis_url)) as redis:
            return _look_at(redis)
    except (RedisError, ValueError, OSError) as error:
        return [fail("Redis", f"does not respond: {error}", "start it, or correct LORAGATE_REDIS_URL")]


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
    """Judge Redis by the response to INFO and the duration of a ping."""
    found = f"{info['redis_version']}, {1000 * seconds:.1f} ms away"
    if int(str(info["redis_version"]).split(".")[0]) < _LEAST_VERSION:
        return fail("Redis", found, f"limits need version {_LEAST_VERSION} or newer")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        advice = "it evicts limits when its memory is full: set maxmemory-policy to noeviction"
        return warn("Redis", f"{found}, maxmemory-policy {policy}", advice)
    if seconds > _BUDGET_SECONDS:
        advice = "requests wait for it at most 50 ms: each process would enforce only its share of the limits"
        return warn("Redis", found, advice)
    return ok("Redis", found)
