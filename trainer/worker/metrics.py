"""A trainer's Prometheus metrics. With PROMETHEUS_MULTIPROC_DIR set they are files there, which a gateway exposes."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from loragate.adapter_store.training.objects import Outcome

_STEP_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_DIFFERENCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)


class TrainerMetrics:
    """The metrics of one trainer; none of them is about a single tenant."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._commands = Counter(
            "loragate_trainer_commands",
            "Commands of runs, by their outcome: done or failed.",
            ("outcome",),
            registry=self.registry,
        )
        self._tokens = Counter(
            "loragate_trainer_tokens", "Tokens of forward and backward passes.", registry=self.registry
        )
        self._seconds = Histogram(
            "loragate_trainer_step_seconds",
            "Time of a computation for one or several runs.",
            buckets=_STEP_SECONDS,
            registry=self.registry,
        )
        self._shared = Counter(
            "loragate_trainer_step_runs",
            "Runs of all these computations, of which one may have several.",
            registry=self.registry,
        )
        self._difference = Histogram(
            "loragate_trainer_sampler_logprob_difference",
            "Mean |logprob of the trainer - of the sampler| of the samples of a request.",
            buckets=_DIFFERENCES,
            registry=self.registry,
        )
        self._runs = self._gauge("runs", "Runs in memory.")
        self._bytes = self._gauge("memory_bytes", "Memory of their adapters, gradients and moments.")

    def record_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """Record the ends of commands."""
        for outcome in outcomes:
            self._commands.labels(outcome.status.value).inc()

    def record_step(self, seconds: float, tokens: int, runs: int) -> None:
        """Record a computation for so many runs."""
        self._seconds.observe(seconds)
        self._tokens.inc(tokens)
        self._shared.inc(runs)

    def record_sampler_difference(self, difference: float | None) -> None:
        """Record how far the logprobs of a request's samples are from the sampler's; None for other requests."""
        if difference is not None:
            self._difference.observe(difference)

    def record_memory(self, runs: int, used: int) -> None:
        """Record what is in memory."""
        self._runs.set(runs)
        self._bytes.set(used)

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(f"loragate_trainer_{name}", words, multiprocess_mode="mostrecent", registry=self.registry)
