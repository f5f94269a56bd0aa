"""Runs learn, resume to the same curve after being killed, and store no pickle."""

import gc
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from thinned import thinned
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from loragate.finetune.data.formats import Method
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.jobs.recipe import Recipe
from loragate.finetune.run.preparation import Prepared
from loragate.finetune.run.schedule import total_steps
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.checkpoints.folders import checkpoints_in
from loragate.finetune.training.protocol.messages import Metrics
from loragate.finetune.training.trainers.callback import TrainingFailed
from tests.finetune.runs import EXAMPLES, RECIPES, make_base, make_tokens, run_training

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS = 2 * EXAMPLES // 4
Whole = Callable[[Method], list[Metrics]]


@pytest.fixture(params=thinned(Method, fast={Method.SUPERVISED}))
def method(request: pytest.FixtureRequest) -> Method:
    return Method(request.param)


@pytest.fixture
def tokens(tmp_path: Path, method: Method) -> TokenFile:
    return make_tokens(tmp_path / "tokens", method)


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The steps that an uninterrupted run reported, by its method."""

    @cache
    def run(method: Method) -> list[Metrics]:
        shown: list[Metrics] = []
        folder = tmp_path_factory.mktemp("whole")
        run_training(base, make_tokens(folder / "tokens", method), folder / "run", RECIPES[method], shown.append)
        return shown

    return run


def losses(shown: list[Metrics]) -> list[tuple[int, float]]:
    return [(each.step, each.train_loss) for each in shown if each.train_loss is not None]


def test_a_quantized_base_leaves_nothing_of_the_checkpoint_in_memory(tmp_path: Path) -> None:
    base = make_base(tmp_path / "base")  # no other process has it mapped
    model = load_base(base, "nf4", torch.device("cpu"))
    gc.collect()
    assert model.get_input_embeddings().weight.dtype == torch.float32
    assert str(base) not in Path("/proc/self/maps").read_text()


def test_a_run_learns_on_a_base_in_four_bits(method: Method, whole: Whole) -> None:
    learned(whole(method), RECIPES[method])


def test_a_run_learns_on_an_unquantized_base(base: Path, tokens: TokenFile, method: Method, tmp_path: Path) -> None:
    shown: list[Metrics] = []
    recipe = replace(RECIPES[method], quantization="none")
    _, steps = run_training(base, tokens, tmp_path / "run", recipe, shown.append)
    assert steps == STEPS == total_steps(Prepared(recipe, tokens, None, None))
    learned(shown, recipe)


def learned(shown: list[Metrics], recipe: Recipe) -> None:
    curve = losses(shown)
    assert [step for step, _ in curve] == list(range(1, STEPS + 1))
    assert curve[-1][1] < 0.9 * curve[0][1]
    assert shown[-1].steps == STEPS
    assert shown[2].learning_rate == pytest.approx(recipe.learning_rate, rel=0.1)


def test_equal_seeds_give_equal_curves(
    base: Path,
    tokens: TokenFile,
    method: Method,
    whole: Whole,
    tmp_path: Path,
) -> None:
    same: list[Metrics] = []
    run_training(base, tokens, tmp_path / "same", RECIPES[method], same.append)
    assert losses(same) == losses(whole(method))
    other: list[Metrics] = []
    stop = threading.Event()

    def on_message(metrics: Metrics) -> None:
        other.append(metrics)
        if metrics.step == 4:  # preferences all have the same loss until a step has been made
            stop.set()

    run_training(base, tokens, tmp_path / "other", replace(RECIPES[method], seed=8), on_message, stop=stop)
    assert losses(other) != losses(same)[: len(losses(other))]


def test_a_stopped_run_resumes_to_the_same_curve(
    base: Path,
    tokens: TokenFile,
    method: Method,
    whole: Whole,
    tmp_path: Path,
) -> None:
    parts: list[Metrics] = []
    stop = threading.Event()

    def reported(metrics: Metrics) -> None:
        parts.append(metrics)
        if metrics.step == 6:
            stop.set()

    assert (
        run_training(base, tokens, tmp_path / "parts", RECIPES[method], reported, stop=stop)[1] == 7
    )  # the one that had begun
    assert run_training(base, tokens, tmp_path / "parts", RECIPES[method], parts.append)[1] == STEPS
    assert losses(parts) == losses(whole(method))


@pytest.mark.long
@pytest.mark.parametrize("method", [Method.DPO])  # the other is killed in test_trainer_process
def test_a_killed_run_resumes_to_the_same_curve(
    base: Path,
    tokens: TokenFile,
    method: Method,
    whole: Whole,
    tmp_path: Path,
) -> None:
    curve = dict(losses(whole(method)))
    last = random.Random(method).randrange(5, STEPS)
    assert _reported_until(last, base, tokens, tmp_path / "run", method) == {
        step: curve[step] for step in range(1, last + 1)
    }
    assert checkpoints_in(tmp_path / "run")
    shown: list[Metrics] = []
    run_training(base, tokens, tmp_path / "run", RECIPES[method], shown.append)
    rest = dict(losses(shown))
    assert min(rest) <= last + 1
    assert max(rest) == STEPS
    assert rest == {step: curve[step] for step in rest}


def _reported_until(last: int, base: Path, tokens: TokenFile, folder: Path, method: Method) -> dict[int, float]:
    """Return what a run in its own process reported; it is killed when it has reported step `last`."""
    command = [sys.executable, str(Path(__file__).parents[1] / "runs.py"), base, tokens.folder, folder, method]
    support = str(Path(__file__).parents[2] / "support")
    process = subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=os.environ | {"PYTHONPATH": support, "TORCHDYNAMO_DISABLE": "1"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    shown: dict[int, float] = {}
    with process:
        while last not in shown:
            step, loss = json.loads(process.stdout.readline())
            shown |= {} if loss is None else {step: loss}
            if last not in shown:
                process.stdin.write("\n")
                process.stdin.flush()
        process.kill()
    return shown


def test_a_checkpoint_is_an_adapter_that_peft_reads_and_contains_no_pickle(
    base: Path, tokens: TokenFile, method: Method, tmp_path: Path
) -> None:
    model, _ = run_training(
        base, tokens, tmp_path / "run", replace(RECIPES[method], quantization="none"), lambda _: None
    )
    *_, before_last, last = checkpoints_in(tmp_path / "run")
    assert {path.suffix for path in last.iterdir()} == {".json", ".safetensors"}
    assert len(checkpoints_in(tmp_path / "run")) == 2
    ids = torch.arange(3, 12)[None]
    if method is Method.CLASSIFY:
        read = PeftModel.from_pretrained(AutoModelForSequenceClassification.from_pretrained(base, num_labels=2), last)
    else:
        read = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), last)
    with torch.no_grad():
        torch.testing.assert_close(read(ids).logits, model.eval()(ids).logits, rtol=1e-4, atol=1e-4)
    assert any(
        not torch.equal(tensor, load_file(before_last / "adapter_model.safetensors")[name])
        for name, tensor in load_file(last / "adapter_model.safetensors").items()
    )


@pytest.mark.long
@pytest.mark.parametrize("method", [Method.SUPERVISED, Method.DPO, Method.CLASSIFY])
def test_with_validation_data_the_best_checkpoint_is_the_result_and_is_kept(
    base: Path, tokens: TokenFile, method: Method, tmp_path: Path
) -> None:
    """The rate is so high that it gets worse eventually; the third evaluation without improvement ends the run."""
    shown: list[Metrics] = []
    wild = replace(RECIPES[method], learning_rate=0.2, early_stopping_patience=2, epochs=40, lr_scheduler="constant")
    model, steps = run_training(base, tokens, tmp_path / "run", wild, shown.append, valid=tokens)
    found = {each.step: each.valid_loss for each in shown if each.valid_loss is not None}
    best = min(found, key=lambda step: found[step] or 0)
    assert best < max(found), "it never got worse"
    assert steps == max(found) == best + 2 * 4 < 20 * STEPS
    assert tmp_path / "run" / f"checkpoint-{best}" in checkpoints_in(tmp_path / "run")
    kept = load_file(tmp_path / "run" / f"checkpoint-{best}" / "adapter_model.safetensors")
    trained = dict(model.named_parameters())
    name = next(name for name in kept if name.endswith("lora_B.weight"))
    assert torch.equal(kept[name], trained[name.replace("lora_B.weight", "lora_B.default.weight")])


def test_a_loss_that_is_not_finite_ends_the_run(base: Path, tmp_path: Path) -> None:
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED)
    wild = replace(RECIPES[Method.SUPERVISED], learning_rate=1e20, warmup_ratio=0.0, max_grad_norm=1e9)
    with pytest.raises(TrainingFailed, match="diverged"):
        run_training(base, tokens, tmp_path / "run", wild, lambda _: None)


def test_nothing_to_learn_is_reported(base: Path, tmp_path: Path) -> None:
    with TokenFileWriter(tmp_path / "tokens") as writer:
        writer.finish({})
    with pytest.raises(TrainingFailed, match="longer than `max_length`"):
        run_training(base, TokenFile(tmp_path / "tokens"), tmp_path / "run", RECIPES[Method.SUPERVISED], lambda _: None)


def test_what_cannot_be_trained_fails_instead_of_being_retried(base: Path, tmp_path: Path) -> None:
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED)
    recipe = replace(RECIPES[Method.SUPERVISED], target_modules=("lm_head",))
    with pytest.raises(TrainingFailed, match=r"This training is not supported: .*lm_head"):
        run_training(base, tokens, tmp_path / "run", recipe, lambda _: None)


def test_packed_rows_are_trained_on(base: Path, tmp_path: Path) -> None:
    shown: list[Metrics] = []
    packed = replace(RECIPES[Method.SUPERVISED], packing=True, max_length=64, batch_size=1)
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED)
    _, steps = run_training(base, tokens, tmp_path / "run", packed, shown.append)
    assert steps < EXAMPLES
    assert steps == total_steps(Prepared(packed, tokens, None, None)), "its worker spreads checkpoints over as many"
    assert losses(shown)[-1][1] < losses(shown)[0][1]


@pytest.mark.parametrize("kind", [{"use_dora": True}, {"use_rslora": True, "target_modules": ("q_proj", "down_proj")}])
def test_other_kinds_learn_as_well(base: Path, tmp_path: Path, kind: dict[str, Any]) -> None:
    shown: list[Metrics] = []
    tokens = make_tokens(tmp_path / "tokens", Method.SUPERVISED)
    run_training(base, tokens, tmp_path / "run", replace(RECIPES[Method.SUPERVISED], **kind), shown.append)
    assert losses(shown)[-1][1] < 0.9 * losses(shown)[0][1]


def test_a_step_is_the_same_in_one_part_and_in_many(
    base: Path, method: Method, tokens: TokenFile, tmp_path: Path
) -> None:
    recipe = replace(RECIPES[method], quantization="none", lora_dropout=0.0, epochs=1)
    curves = []
    for row_tokens in (1, 1000):
        shown: list[Metrics] = []
        run_training(base, tokens, tmp_path / f"{row_tokens}", recipe, shown.append, row_tokens=row_tokens)
        curves.append([(each.train_loss, each.grad_norm) for each in shown])
    assert curves[0] == [pytest.approx(each, rel=1e-3) for each in curves[1]]


def test_a_recipe_survives_json(method: Method) -> None:
    recipe = replace(RECIPES[method], target_modules=("q_proj", "v_proj"))
    assert Recipe.from_document(json.loads(json.dumps(recipe.to_document()))) == recipe
