"""The losses, and their derivatives by the logprobs.

With p the logprobs of the targets, q those of the sampler, a the advantages and w the weights (1 where there are none),
r = exp(p − q), and sums over all positions and targets, never means:

| loss | formula |
|---|---|
| cross_entropy | −Σ w·p |
| importance_sampling | −Σ w·r·a |
| ppo | −Σ w·min(r·a, clip(r, low, high)·a), Schulman et al., 2017, arXiv:1707.06347, equation 7 |
| cispo | −Σ w·sg(clip(r, low, high))·a·p, MiniMax, 2025, arXiv:2506.13585, equation 4; sg has no derivative |
| dro | −Σ w·(a·p − β/2·(p − q)²), Richemond et al., 2024, arXiv:2405.19107 |

low and high bound the ratio: `clip_low_threshold` 0.8 and `clip_high_threshold` 1.2, or arrays [T] of these names. β is
`beta`, 0.05. Inputs [T] apply to all targets of a position.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from loragate.trainer.datum import TARGETS, Datum, Floats, check_values
from loragate.trainer.errors import TrainingRejected

_LOW, _HIGH = "clip_low_threshold", "clip_high_threshold"
_UNAVAILABLE = {
    "stable_reinforce": "it needs records of the sampler that are not public; use importance_sampling, or ppo",
    "custom": "compute it on the client (forward_backward_custom), or use importance_sampling",
    "gspo": "it is not available; use importance_sampling, ppo or cispo",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss at each position and target, [T, K], and its derivative by the logprob."""

    values: Floats
    derivative: Floats


Formula = Callable[[Floats, Mapping[str, Floats], Mapping[str, float]], Loss]


@dataclass(frozen=True, slots=True)
class LossFunction:
    """One loss: the inputs that it needs and accepts, and its numbers with their defaults."""

    formula: Formula
    needs: tuple[str, ...] = ()
    accepts: tuple[str, ...] = ()
    config: Mapping[str, float] | None = None


def _cross_entropy(p: Floats, inputs: Mapping[str, Floats], config: Mapping[str, float]) -> Loss:
    weights = inputs["weights"]
    return Loss(-weights * p, -weights)


def _importance_sampling(p: Floats, inputs: Mapping[str, Floats], config: Mapping[str, float]) -> Loss:
    gain = -inputs["weights"] * inputs["advantages"] * np.exp(p - inputs["logprobs"])
    return Loss(gain, gain)


def _ppo(p: Floats, inputs: Mapping[str, Floats], config: Mapping[str, float]) -> Loss:
    ratio, advantages = np.exp(p - inputs["logprobs"]), inputs["advantages"]
    free, clipped = ratio * advantages, np.clip(ratio, inputs[_LOW], inputs[_HIGH]) * advantages
    weights = inputs["weights"]
    return Loss(-weights * np.minimum(free, clipped), np.where(free <= clipped, -weights * free, 0.0))


def _cispo(p: Floats, inputs: Mapping[str, Floats], config: Mapping[str, float]) -> Loss:
    ratio = np.clip(np.exp(p - inputs["logprobs"]), inputs[_LOW], inputs[_HIGH])
    slope = -inputs["weights"] * ratio * inputs["advantages"]
    return Loss(slope * p, slope)


def _dro(p: Floats, inputs: Mapping[str, Floats], config: Mapping[str, float]) -> Loss:
    distance, advantages, beta = p - inputs["logprobs"], inputs["advantages"], config["beta"]
    weights = inputs["weights"]
    return Loss(-weights * (advantages * p - beta / 2 * distance * distance), -weights * (advantages - beta * distance))


_CLIPPED = {_LOW: 0.8, _HIGH: 1.2}
_SAMPLED = ("logprobs", "advantages")
LOSSES: Mapping[str, LossFunction] = {
    "cross_entropy": LossFunction(_cross_entropy, accepts=("weights",)),
    "importance_sampling": LossFunction(_importance_sampling, _SAMPLED, ("weights",)),
    "ppo": LossFunction(_ppo, _SAMPLED, ("weights", _LOW, _HIGH), _CLIPPED),
    "cispo": LossFunction(_cispo, _SAMPLED, ("weights", _LOW, _HIGH), _CLIPPED),
    "dro": LossFunction(_dro, _SAMPLED, ("weights",), {"beta": 0.05}),
}


def check_loss(loss_fn: str, loss_config: Mapping[str, float]) -> LossFunction:
    """Return the loss of this name. Raise TrainingRejected for an unknown one, or unknown or bad numbers."""
    if loss_fn in _UNAVAILABLE:
        raise TrainingRejected(f"loss_fn: {loss_fn} cannot be computed here: {_UNAVAILABLE[loss_fn]}")
    found = LOSSES.get(loss_fn)
    if found is None:
        raise TrainingRejected(f"loss_fn: {loss_fn!r} is unknown; there are {', '.join(LOSSES)}")
    known = found.config or {}
    for name, value in loss_config.items():
        if name not in known:
            numbers = f"has {', '.join(known)}" if known else "has no settings"
            raise TrainingRejected(f"loss_fn_config.{name}: is unknown; {loss_fn} {numbers}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
            raise TrainingRejected(f"loss_fn_config.{name}: must be a finite number, not {value!r}")
    return found


def check_inputs(datum: Datum, where: str, loss_fn: str, loss: LossFunction, config: Mapping[str, float]) -> None:
    """Check a datum's arrays for this loss. Raise TrainingRejected naming the field."""
    for name in loss.needs:
        if name not in datum.inputs:
            raise TrainingRejected(f"{where}.loss_fn_inputs.{name}: is missing; {loss_fn} needs it")
    for name in datum.inputs:
        if name == TARGETS:
            continue
        if name not in loss.needs and name not in loss.accepts:
            raise TrainingRejected(f"{where}.loss_fn_inputs.{name}: is unknown to {loss_fn}")
        check_values(datum, where, name, per_target=name not in (_LOW, _HIGH))
    if _LOW in (loss.config or {}):
        numbers = {**(loss.config or {}), **config}
        low, high = (np.asarray(datum.inputs.get(name, numbers[name])) for name in (_LOW, _HIGH))
        if (low < 0).any() or (low > high).any():
            raise TrainingRejected(
                f"{where}.loss_fn_inputs.{_LOW}: the bounds of the ratio must be 0 ≤ low ≤ high; the defaults are "
                f"{_CLIPPED[_LOW]} and {_CLIPPED[_HIGH]}"
            )


def compute_loss(
    loss_fn: str, config: Mapping[str, float], datum: Datum, logprobs: Floats, start: int, stop: int
) -> Loss:
    """Compute the loss of the positions from `start` to `stop`; `logprobs` are theirs, [stop − start, K]."""
    loss = LOSSES[loss_fn]
    numbers = {**(loss.config or {}), **config}
    inputs = {
        name: _columns(datum.inputs[name][start:stop])
        for name in ("weights", *loss.needs, *loss.accepts)
        if name in datum.inputs
    }
    one = np.ones((1, 1))
    inputs.setdefault("weights", one)
    for name in (_LOW, _HIGH):
        if name in numbers:
            inputs.setdefault(name, one * numbers[name])
    with np.errstate(over="ignore", invalid="ignore"):
        computed = loss.formula(logprobs, inputs, numbers)
    return Loss(np.broadcast_to(computed.values, logprobs.shape), np.broadcast_to(computed.derivative, logprobs.shape))


def sampler_difference(loss_fn: str, data: Sequence[Datum], logprobs: Sequence[np.ndarray]) -> float | None:
    """Return the mean |p − q| of the targets with an advantage, of a request's logprobs p, each [T, K], and those that
    the sampler gave. Return None for a loss without q, or without an advantage."""
    if "logprobs" not in LOSSES[loss_fn].needs:
        return None
    total, count = 0.0, 0
    for datum, found in zip(data, logprobs, strict=True):
        q, advantages = (np.broadcast_to(_columns(datum.inputs[name]), found.shape) for name in _SAMPLED)
        sampled = advantages != 0
        total += float(np.abs(found - q)[sampled].sum())
        count += int(sampled.sum())
    return total / count if count else None


def _columns(values: np.ndarray) -> Floats:
    """Return [T] as [T, 1], in double precision."""
    wide = values.astype(np.float64)
    return wide[:, None] if wide.ndim == 1 else wide
