"""A restored run continues as if it had never been away, to the last bit."""

from pathlib import Path

import pytest
from safetensors.torch import load, save
from training_runs import compute, datum, load_trainer, request, save_model

from loragate.trainer.trainer import AdamParams, LoraSettings, Trainer, TrainingRejected

PARAMS = AdamParams(learning_rate=1e-3, weight_decay=0.01)
DATA = [datum(1, 20), datum(2, 9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("base"), "qwen2")[1]


@pytest.fixture
def trainer(folder: Path) -> Trainer:
    """A trainer with a run of two steps, and a gradient."""
    trainer = load_trainer(folder)
    trainer.create("run", LoraSettings(rank=3, seed=4, train_mlp=False))
    for _ in range(2):
        train(trainer, "run")
    compute(trainer, request("run", DATA[:1]))
    return trainer


def train(trainer: Trainer, run_id: str) -> float:
    loss = compute(trainer, request(run_id, DATA))[0].metrics["loss:sum"]
    trainer.optim_step(run_id, PARAMS)
    return loss


def test_a_restored_run_continues_bitwise(trainer: Trainer, folder: Path) -> None:
    state = trainer.state("run")
    other = load_trainer(folder)
    other.restore("again", state)
    assert other.state("again") == state
    assert other.has_gradients("again")
    for _ in range(2):
        assert train(trainer, "run") == train(other, "again")
    assert trainer.state("run") == other.state("again")


def test_moments_and_gradient_can_be_left_out(trainer: Trainer) -> None:
    state = trainer.state("run")
    trainer.restore("weights", state, optimizer=False, gradients=False)
    assert trainer.export("weights") == trainer.export("run")
    assert not trainer.has_gradients("weights")
    trainer.clear_gradients("run")
    train(trainer, "run")
    train(trainer, "weights")
    assert trainer.export("weights") != trainer.export("run")  # its first step has no moments


def test_restoring_replaces_a_run(trainer: Trainer) -> None:
    state = trainer.state("run")
    trainer.create("other", LoraSettings(rank=1, seed=9))
    trainer.restore("other", state)
    assert trainer.state("other") == state
    assert trainer.run_ids == ("run", "other")


def test_states_that_are_not_ours_are_rejected(trainer: Trainer, tmp_path: Path) -> None:
    state = trainer.state("run")
    for wrong in (b"", b"x" * 40, state[:-8], state[:200], save(load(state))):
        with pytest.raises(TrainingRejected, match=r"^state: is not a training state"):
            trainer.restore("other", wrong)
    wider = load_trainer(save_model(tmp_path, "qwen2", hidden_size=64)[1])
    with pytest.raises(TrainingRejected, match=r"^state: weights of .* are missing, or not those of this base model"):
        wider.restore("other", state)
    with pytest.raises(TrainingRejected, match="is not a module of this base model"):
        load_trainer(save_model(tmp_path, "gpt2")[1]).restore("other", state)
    assert trainer.run_ids == ("run",)
