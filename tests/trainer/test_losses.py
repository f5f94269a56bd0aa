"""The losses are their formulas, and their derivatives are those of the formulas; wrong inputs are named."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from loragate.trainer.datum import Datum, check_tokens
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.losses import LOSSES, check_inputs, check_loss, compute_loss, sampler_difference

LENGTH = 12


def formula(name: str, p: Tensor, x: Mapping[str, Tensor], config: Mapping[str, float]) -> Tensor:
    """Return the loss [T, K] as the documentation writes it."""
    w = x["weights"]
    if name == "cross_entropy":
        return -w * p
    q, a = x["logprobs"], x["advantages"]
    r = (p - q).exp()
    low = x.get("clip_low_threshold", torch.tensor(config.get("clip_low_threshold", 0.8), dtype=torch.float64))
    high = x.get("clip_high_threshold", torch.tensor(config.get("clip_high_threshold", 1.2), dtype=torch.float64))
    match name:
        case "importance_sampling":
            return -w * r * a
        case "ppo":
            return -w * torch.minimum(r * a, r.clamp(low, high) * a)
        case "cispo":
            return -w * r.clamp(low, high).detach() * a * p
    return -w * (a * p - config.get("beta", 0.05) / 2 * (p - q) ** 2)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shape", [(LENGTH,), (LENGTH, 3)], ids=["one-target", "three-targets"])
def test_a_loss_is_its_formula(name: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(3)
    p = random.normal(-2, 0.5, shape).reshape(LENGTH, -1)
    inputs: dict[str, Any] = {"target_tokens": random.integers(0, 9, shape), "weights": random.uniform(0, 2, shape)}
    configs: list[dict[str, float]] = [{}]
    if name != "cross_entropy":
        inputs |= {"logprobs": random.normal(-2, 0.5, shape), "advantages": random.normal(size=LENGTH)}
    if name in ("ppo", "cispo"):
        configs.append({"clip_low_threshold": 0.6, "clip_high_threshold": 1.5})
        bounds = {"clip_low_threshold": random.uniform(0.5, 0.9, LENGTH), "clip_high_threshold": np.full(LENGTH, 1.1)}
    if name == "dro":
        configs.append({"beta": 0.3})
    cases = [(inputs, config) for config in configs] + ([(inputs | bounds, {})] if name in ("ppo", "cispo") else [])
    for given, config in cases:
        datum = Datum(np.zeros(LENGTH, np.int64), given)
        check_inputs(datum, "data[0]", name, check_loss(name, config), config)
        found = compute_loss(name, config, datum, p[2:9], 2, 9)
        wide = {k: torch.from_numpy(v[2:9]).reshape(7, -1) for k, v in given.items() if k != "target_tokens"}
        leaf = torch.from_numpy(p[2:9]).requires_grad_()
        expected = formula(name, leaf, wide, config)
        expected.sum().backward()
        np.testing.assert_allclose(found.values, expected.detach().numpy(), rtol=1e-12)
        assert leaf.grad is not None
        np.testing.assert_allclose(found.derivative, leaf.grad.numpy(), rtol=1e-12)


def test_weights_are_one_by_default() -> None:
    datum = Datum(np.zeros(3, np.int64), {"target_tokens": np.zeros(3, np.int64)})
    assert compute_loss("cross_entropy", {}, datum, np.full((3, 1), -2.0), 0, 3).values.tolist() == [[2.0]] * 3


SAMPLED = {"logprobs": np.zeros(4, np.float32), "advantages": np.ones(4, np.float32)}
TARGETS = np.array([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("loss_fn", "config", "tokens", "inputs", "message"),
    [
        ("cross_entropy", {}, [], {}, "data[2].model_input: must be a sequence of at least one token"),
        ("cross_entropy", {}, [1] * 9, {}, "data[2].model_input: has 9 tokens"),
        ("cross_entropy", {}, [1, 2, -1, 3], {}, "data[2].model_input: has the id -1"),
        ("cross_entropy", {}, [1, 2, 10, 3], {}, "data[2].model_input: has the id 10"),
        ("cross_entropy", {}, [1, 2, 3, 4], {}, "data[2].loss_fn_inputs.target_tokens: is missing"),
        ("cross_entropy", {}, [1, 2, 3, 4], {"target_tokens": TARGETS[:3]}, "target_tokens: must have the shape [4]"),
        ("cross_entropy", {}, [1, 2, 3, 4], {"target_tokens": TARGETS * 9}, "target_tokens: has the id 36"),
        (
            "cross_entropy",
            {},
            [1, 2, 3, 4],
            {"target_tokens": TARGETS / 2},
            "target_tokens: must be token ids in int64",
        ),
        ("cross_entropy", {}, [1, 2, 3, 4], {"target_tokens": np.zeros((4, 0), np.int64)}, "must have the shape [4]"),
        ("cross_entropy", {}, None, {"weights": np.ones(3)}, "data[2].loss_fn_inputs.weights: must have the shape [4]"),
        ("cross_entropy", {}, None, {"weights": np.array(["a"] * 4)}, "weights: must be numbers"),
        ("cross_entropy", {}, None, {"weights": np.full(4, np.nan)}, "weights: must be finite"),
        ("cross_entropy", {}, None, {"advantages": np.ones(4)}, "advantages: is unknown to cross_entropy"),
        ("cross_entropy", {"beta": 1.0}, None, {}, "loss_fn_config.beta: is unknown"),
        ("ppo", {}, None, {}, "data[2].loss_fn_inputs.logprobs: is missing; ppo needs it"),
        ("ppo", {"clip_low_threshold": float("nan")}, None, SAMPLED, "clip_low_threshold: must be a finite number"),
        ("ppo", {"clip_low_threshold": 1.3}, None, SAMPLED, "the bounds of the ratio must be 0 ≤ low ≤ high"),
        ("cispo", {}, None, SAMPLED | {"clip_high_threshold": np.full(4, 0.2)}, "must be 0 ≤ low ≤ high"),
        ("stable_reinforce", {}, None, {}, "use importance_sampling"),
        ("custom", {}, None, {}, "importance_sampling"),
        ("mse", {}, None, {}, "loss_fn: 'mse' is unknown; there are cross_entropy"),
    ],
)
def test_wrong_inputs_are_named(
    loss_fn: str, config: dict[str, float], tokens: list[int] | None, inputs: dict[str, Any], message: str
) -> None:
    given = {"target_tokens": TARGETS} | inputs if tokens is None else inputs
    datum = Datum(np.array(tokens if tokens is not None else [1, 2, 3, 4], np.int64), given)
    with pytest.raises(TrainingRejected) as rejected:
        check(datum, loss_fn, config)
    assert message in str(rejected.value)


def check(datum: Datum, loss_fn: str, config: Mapping[str, float]) -> None:
    loss = check_loss(loss_fn, config)
    check_tokens(datum, "data[2]", 10, 8)
    check_inputs(datum, "data[2]", loss_fn, loss, config)


def test_the_difference_to_the_sampler_is_that_of_the_sampled_tokens() -> None:
    p = [np.array([[-1.0], [-2.0], [-3.0]]), np.array([[-1.0, -4.0]])]
    first = {"logprobs": np.array([0.0, -2.5, -3.0]), "advantages": np.array([0.0, 1.0, -1.0])}
    second = {"logprobs": np.array([[-1.25, -4.0]]), "advantages": np.array([2.0])}
    data = [Datum(np.zeros(len(each["advantages"]), np.int64), each) for each in (first, second)]
    assert sampler_difference("ppo", data, p) == (0.5 + 0.0 + 0.25 + 0.0) / 4
    data[0].inputs["advantages"][:] = 0  # type: ignore[index]
    assert sampler_difference("ppo", data[:1], p[:1]) is None
    assert sampler_difference("cross_entropy", data, p) is None
