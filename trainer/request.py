"""Requests for losses and gradients, and their results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loragate.trainer.datum import TARGETS, Array, Datum, Floats
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.losses import compute_loss, sampler_difference
from loragate.trainer.packing import Work

SAMPLER_DIFFERENCE = "sampler_logprob_difference:mean"


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """Losses of some data with one run's adapter and, unless `forward_only`, their gradients, which add up."""

    run_id: str
    data: tuple[Datum, ...]
    loss_fn: str
    loss_config: Mapping[str, float]
    forward_only: bool


@dataclass(frozen=True, slots=True)
class ForwardBackwardResult:
    """The result of one request.

    Attributes:
        metrics: "loss:sum" and, for a loss of samples, `SAMPLER_DIFFERENCE`, the mean |Δ logprob| to the sampler's.
        outputs: for each datum "logprobs", float32, shaped like its `target_tokens`.
    """

    metrics: Mapping[str, float]
    outputs: tuple[Mapping[str, Array], ...]


class DatumResults:
    """The logprobs and losses of some requests' data, as they are computed piece by piece."""

    def __init__(self, requests: Sequence[ForwardBackward]) -> None:
        self._requests = requests
        self._logprobs = [[np.zeros(d.targets.shape, np.float32) for d in r.data] for r in requests]
        self._losses = [[np.zeros(d.targets.shape) for d in r.data] for r in requests]
        self.errors: dict[int, TrainingRejected] = {}
        """By the request's index, why it failed."""

    def add(self, work: Work, start: int, stop: int, logprobs: NDArray[np.float32]) -> Floats:
        """Record a datum's logprobs [stop − start, K] from `start` on; return the loss's derivative by them.

        A request whose loss is not finite fails, and its derivatives are zero.
        """
        request = self._requests[work.request]
        loss = compute_loss(request.loss_fn, request.loss_config, work.datum, logprobs.astype(np.float64), start, stop)
        self._logprobs[work.request][work.place][start:stop] = logprobs
        self._losses[work.request][work.place][start:stop] = loss.values
        if not (np.isfinite(loss.values).all() and np.isfinite(loss.derivative.astype(np.float32)).all()):
            self.fail(work.request, f"data[{work.place}]: the loss is not finite; no gradient of this request was kept")
        return np.zeros_like(loss.derivative) if work.request in self.errors else loss.derivative

    def fail(self, request: int, message: str) -> None:
        """Record why a request failed; the first reason stays."""
        self.errors.setdefault(request, TrainingRejected(message))

    def result(self, request: int) -> ForwardBackwardResult | TrainingRejected:
        """Return a request's result once all its data are computed."""
        if request in self.errors:
            return self.errors[request]
        total = float(sum(loss.sum() for loss in self._losses[request]))
        outputs = tuple(
            {"logprobs": found.reshape(datum.inputs[TARGETS].shape)}
            for found, datum in zip(self._logprobs[request], self._requests[request].data, strict=True)
        )
        metrics = {"loss:sum": total}
        asked = self._requests[request]
        difference = sampler_difference(asked.loss_fn, asked.data, self._logprobs[request])
        if difference is not None:
            metrics[SAMPLER_DIFFERENCE] = difference
        return ForwardBackwardResult(metrics, outputs)
