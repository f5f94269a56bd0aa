"""A worker's Prometheus metrics. With PROMETHEUS_MULTIPROC_DIR set they are files there, which another process
exposes."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from loragate.finetune.training.protocol.messages import Metrics

_STEP_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class FinetuneMetrics:
    """The metrics of one worker, which trains one job at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._clock = clock
        self._last: tuple[int, float] | None = None  # the previous step and the time of its report
        self._steps = Counter("loragate_finetune_steps", "Training steps.", registry=self.registry)
        self._seconds = Histogram(
            "loragate_finetune_step_seconds",
            "Time from one step's end to the next one's, including pauses for the engine.",
            buckets=_STEP_SECONDS,
            registry=self.registry,
        )
        self._jobs = Counter(
            "loragate_finetune_jobs", "Attempts at jobs, by outcome.", ("outcome",), registry=self.registry
        )
        self._gauges = {
            "step": self._gauge("step", "Current step of the job in training."),
            "steps": self._gauge("total_steps", "Total steps of the job in training."),
            "train_loss": self._gauge("train_loss", "Training loss of its last step."),
            "valid_loss": self._gauge("valid_loss", "Last validation loss."),
            "learning_rate": self._gauge("learning_rate", "Current learning rate."),
            "grad_norm": self._gauge("gradient_norm", "Gradient norm of the last step, before clipping."),
        }
        self._load = self._gauge(
            "engine_load", "Share of the time in which the engine computes, as last reported to the trainer."
        )

    def record_step(self, metrics: Metrics) -> None:
        """Record a step or an evaluation."""
        for name, gauge in self._gauges.items():
            value = getattr(metrics, name)
            if value is not None:
                gauge.set(value)
        if metrics.train_loss is None:
            return
        now = self._clock()
        self._steps.inc()
        if self._last is not None and self._last[0] == metrics.step - 1:
            self._seconds.observe(now - self._last[1])
        self._last = (metrics.step, now)

    def record_engine_load(self, load: float) -> None:
        """Record the engine's load, which training gives way to."""
        self._load.set(load)

    def record_end(self, outcome: str) -> None:
        """Record the end of an attempt: finished, stopped or failed."""
        self._jobs.labels(outcome).inc()

    def _gauge(self, name: str, words: str) -> Gauge:
        return Gauge(f"loragate_finetune_{name}", words, multiprocess_mode="mostrecent", registry=self.registry)
