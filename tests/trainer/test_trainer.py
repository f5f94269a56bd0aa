"""What a trainer accepts, what it counts, and what a failure leaves behind."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from training_runs import compute, datum, load_trainer, request, save_model

from loragate.trainer.adapter import target_names
from loragate.trainer.optimizer import adamw_step, gradient_norm
from loragate.trainer.trainer import AdamParams, Datum, LoraSettings, Trainer, TrainingRejected


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("base"), "llama")[1]


@pytest.fixture
def trainer(folder: Path) -> Trainer:
    trainer = load_trainer(folder)
    for name in ("a", "b"):
        trainer.create(name, LoraSettings(rank=4, seed=3))
    return trainer


def test_targets_have_roles(trainer: Trainer) -> None:
    assert trainer.targets["unembed"] == ("lm_head",)
    assert {name.rpartition(".")[2] for name in trainer.targets["attn"]} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert {name.rpartition(".")[2] for name in trainer.targets["mlp"]} == {"gate_proj", "up_proj", "down_proj"}
    assert (trainer.vocabulary_size, trainer.max_length) == (96, 512)


def test_targets_do_not_change_each_others_weights(trainer: Trainer) -> None:
    trainer.create("head", LoraSettings(rank=4, seed=3, train_attn=False, train_mlp=False))
    trainer.create("other", LoraSettings(rank=4, seed=4, train_attn=False, train_mlp=False))
    a, head, other = (
        {name: value for name, value, _ in trainer._runs[run].layout.factors(trainer._runs[run].buffer.flat)}
        for run in ("a", "head", "other")
    )
    assert list(head) == ["lm_head"]
    assert torch.equal(a["lm_head"], head["lm_head"])
    assert not torch.equal(head["lm_head"], other["lm_head"])
    assert 0.1 < float(head["lm_head"].abs().max()) * math.sqrt(32) <= 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for a GPU")
def test_a_gpu_is_left_to_the_engine_there(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 80))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 16)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: limits.append(share))
    trainer.limit_device_memory(8)
    assert limits == [], "memory of a CPU is everyone's"
    monkeypatch.setattr(trainer, "_base", SimpleNamespace(device=torch.device("cuda")))
    trainer.limit_device_memory(8)
    trainer.limit_device_memory(100)
    assert limits == [0.3, 1.0]


def test_memory_is_estimated(trainer: Trainer) -> None:
    small, large = LoraSettings(rank=2), LoraSettings(rank=64)
    numbers = sum(64 * sum(trainer._base.targets.shapes[n]) for n in target_names(large, trainer._base.targets))
    assert 16 * numbers <= trainer.estimate(large) <= 16 * numbers + (1 << 17)
    trainer.create("small", small)
    assert trainer.bytes_of("small") == trainer.estimate(small) < trainer.estimate(large)
    trainer.unload("small")
    assert trainer.run_ids == ("a", "b")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (LoraSettings(rank=0), "lora_config.rank: must be a whole number from 1 to 256, got 0"),
        (LoraSettings(rank=257), "lora_config.rank"),
        (LoraSettings(rank=4, train_mlp=False, train_attn=False, train_unembed=False), "lora_config: trains nothing"),
        (LoraSettings(rank=4, seed="x"), "lora_config.seed: must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_settings_are_checked(trainer: Trainer, settings: LoraSettings, message: str) -> None:
    with pytest.raises(TrainingRejected) as rejected:
        trainer.create("c", settings)
    assert message in str(rejected.value)
    with pytest.raises(TrainingRejected):
        trainer.estimate(settings)
    assert trainer.run_ids == ("a", "b")


def test_gradients_of_requests_add_up(trainer: Trainer) -> None:
    data = [datum(i, 10 + i) for i in range(4)]
    one, two = compute(trainer, request("a", data[:2]), request("a", data[2:]))
    (all_,) = compute(trainer, request("b", data))
    assert trainer.state("a") == trainer.state("b")
    assert math.isclose(one.metrics["loss:sum"] + two.metrics["loss:sum"], all_.metrics["loss:sum"])


def test_a_forward_pass_alone_leaves_no_gradient(trainer: Trainer) -> None:
    data = [datum(1, 20, targets=3)]
    forward, both = compute(trainer, request("a", data, forward_only=True), request("b", data))
    assert not trainer.has_gradients("a")
    assert trainer.has_gradients("b")
    assert forward.metrics == both.metrics
    assert forward.outputs[0]["logprobs"].shape == (20, 3)
    assert forward.outputs[0]["logprobs"].dtype == np.float32
    assert np.array_equal(forward.outputs[0]["logprobs"], both.outputs[0]["logprobs"])


def test_losses_of_policies_have_their_gradients(trainer: Trainer) -> None:
    """With the sampler's logprobs equal to the model's, all of them have the policy gradient."""
    data = datum(1, 20, sampled=True)
    found = compute(trainer, request("a", [data], "importance_sampling", forward_only=True))[0].outputs[0]["logprobs"]
    exact = Datum(data.tokens, {**data.inputs, "logprobs": found})
    weights = {"target_tokens": data.inputs["target_tokens"], "weights": data.inputs["advantages"]}
    compute(trainer, request("a", [Datum(data.tokens, weights)]))
    expected = trainer._runs["a"].gradient
    for loss_fn in ("importance_sampling", "ppo", "cispo", "dro"):
        trainer.clear_gradients("b")
        compute(trainer, request("b", [exact], loss_fn))
        gradient = trainer._runs["b"].gradient
        assert expected is not None
        assert gradient is not None
        torch.testing.assert_close(gradient.flat, expected.flat)


def test_a_request_that_fails_leaves_its_runs_gradient(trainer: Trainer) -> None:
    data = [datum(1, 20), datum(2, 150)]
    compute(trainer, request("a", data), request("b", data))
    before, alone = trainer.state("a"), trainer.state("b")
    compute(trainer, request("b", data))
    expected = trainer.state("b")
    trainer.restore("b", alone)

    sampled = datum(3, 20, sampled=True)
    sampled.inputs["logprobs"][4] = -1e4  # type: ignore[index]
    bad = request("a", [datum(4, 20, sampled=True), sampled], "importance_sampling")
    wrong = request("a", [datum(3, 20, targets=0)], "ppo")
    nan, good, rejected = trainer.forward_backward([bad, request("b", data), wrong])
    assert isinstance(nan, TrainingRejected)
    assert str(nan).startswith("data[1]: the loss is not finite")
    assert isinstance(rejected, TrainingRejected)
    assert str(rejected).startswith("data[0].loss_fn_inputs.logprobs: is missing")
    assert not isinstance(good, TrainingRejected)
    assert trainer.state("a") == before
    assert trainer.state("b") == expected


def test_a_run_of_broken_weights_breaks_no_other(trainer: Trainer) -> None:
    trainer.create("alone", LoraSettings(rank=4, seed=3))
    data = [datum(1, 20)]
    trainer._runs["a"].buffer.flat.fill_(torch.nan)
    broken, sound = trainer.forward_backward([request("a", data), request("b", data)])
    (alone,) = compute(trainer, request("alone", data))
    assert isinstance(broken, TrainingRejected)
    assert not isinstance(sound, TrainingRejected)
    assert sound.metrics == alone.metrics
    assert trainer.state("b") == trainer.state("alone")


def test_a_step_needs_a_gradient(trainer: Trainer) -> None:
    with pytest.raises(TrainingRejected, match=r"^optim_step: there is no gradient"):
        trainer.optim_step("a", AdamParams())
    compute(trainer, request("a", [datum(1, 20)]))
    norm = trainer._runs["a"].gradient
    assert norm is not None
    expected = float(norm.flat.double().norm())
    (metric,) = trainer.optim_step("a", AdamParams()).items()
    assert metric[0] == "grad_norm:mean"
    assert math.isclose(metric[1], expected, rel_tol=1e-6)
    assert not trainer.has_gradients("a")


@pytest.mark.parametrize(
    ("params", "field"),
    [
        (AdamParams(learning_rate=math.nan), "learning_rate"),
        (AdamParams(beta1=1.0), "beta1"),
        (AdamParams(beta2=-0.1), "beta2"),
        (AdamParams(eps=0.0), "eps"),
        (AdamParams(weight_decay="0.1"), "weight_decay"),  # type: ignore[arg-type]
        (AdamParams(grad_clip_norm=math.inf), "grad_clip_norm"),
    ],
)
def test_numbers_of_a_step_are_checked(trainer: Trainer, params: AdamParams, field: str) -> None:
    compute(trainer, request("a", [datum(1, 20)]))
    before = trainer.state("a")
    with pytest.raises(TrainingRejected, match=rf"^adam_params\.{field}: "):
        trainer.optim_step("a", params)
    assert trainer.state("a") == before


def test_adamw_is_torchs_bit_by_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    weights, mean, square = torch.randn(2048, generator=generator), torch.zeros(2048), torch.zeros(2048)
    parameter = weights.clone().requires_grad_()
    params = AdamParams(learning_rate=3e-3, weight_decay=0.1, eps=1e-8)
    optimizer = torch.optim.AdamW([parameter], 3e-3, (0.9, 0.95), 1e-8, 0.1, foreach=False)
    for step in range(1, 5):
        gradient = torch.randn(2048, generator=generator)
        parameter.grad = gradient.clone()
        adamw_step(weights, gradient, mean, square, step, params)
        optimizer.step()
    assert torch.equal(weights, parameter.detach())
    assert math.isclose(gradient_norm(weights), float(weights.double().norm()), rel_tol=1e-6)
