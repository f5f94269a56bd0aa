"""Failed authentications: how many there are, and how many an address may cause."""

from collections import OrderedDict

from prometheus_client import CollectorRegistry, Counter

from loragate.adapter_store.timestamps import elapsed

MALFORMED, UNKNOWN, THROTTLED, TOKEN = "malformed", "unknown", "throttled", "token"
_REASONS = (MALFORMED, UNKNOWN, THROTTLED, TOKEN)
_MAX_NETWORKS = 10_000


class FailureMetrics:
    """One per application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._failures = Counter(
            "loragate_gateway_failed_authentications",
            "Requests whose key or token was rejected, by reason.",
            ("reason",),
            registry=registry,
        )
        for reason in _REASONS:
            self._failures.labels(reason)

    def failed(self, reason: str) -> None:
        """Count a rejected key: one that cannot be a key, an unknown, revoked or expired one, one that was not looked
        up because its network had too many failures, or an invalid token."""
        self._failures.labels(reason).inc()


class FailureThrottle:
    """A bucket of tokens for each network of clients: a look-up takes one, and gives it back if it finds a key."""

    def __init__(self, burst: int = 20, per_second: float = 1.0) -> None:
        self._burst = burst
        self._per_second = per_second
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def take(self, network: str) -> float:
        """Take a token. Return 0, or how many seconds it takes until there is one."""
        tokens = self._tokens(network)
        if tokens < 1:
            return (1 - tokens) / self._per_second
        self._set(network, tokens - 1)
        return 0.0

    def give_back(self, network: str) -> None:
        """Give a token back."""
        self._set(network, self._tokens(network) + 1)

    def _tokens(self, network: str) -> float:
        tokens, counted_at = self._buckets.get(network, (float(self._burst), 0.0))
        return min(self._burst, tokens + self._per_second * (elapsed() - counted_at))

    def _set(self, network: str, tokens: float) -> None:
        self._buckets[network] = tokens, elapsed()
        self._buckets.move_to_end(network)
        if len(self._buckets) > _MAX_NETWORKS:
            self._buckets.popitem(last=False)
