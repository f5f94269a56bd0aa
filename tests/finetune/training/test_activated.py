"""Training of activated LoRA (aLoRA): the adapter is in effect, and learns, from the invocation in a row on, and the
engine serves it as PEFT does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel
from peft.tuners.lora import LoraLayer
from tiny_models import greedy, make_model
from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForCausalLM

from loragate.engine.local import LocalEngine
from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.formats import Method
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.training.adapter import new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.checkpoints.checkpoint import save_adapter
from loragate.finetune.training.protocol.messages import Metrics
from tests.finetune.runs import RECIPES, run_training

INVOCATION = (300, 301)
RECIPE = replace(
    RECIPES[Method.SUPERVISED], quantization="none", lora_dropout=0.0, alora_invocation_tokens=INVOCATION, epochs=4
)

pytestmark = pytest.mark.usefixtures("one_thread")
EXAMPLES = 16
SALT = b"a tenant's"


def samples() -> Iterator[Sample]:
    """Yield documents of different lengths with a count after the invocation, which every other one has twice."""
    draw = np.random.default_rng(0)
    for number in range(EXAMPLES):
        earlier = [*INVOCATION, 5] if number % 2 else []
        prompt = [*earlier, *draw.integers(3, 290, draw.integers(4, 30)), *INVOCATION]
        ids = np.array([*prompt, *range(10 + number % 3, 15 + number % 3)], np.uint32)
        yield Sample(ids, np.arange(len(ids)) >= len(prompt))


def tokens_of(folder: Path) -> TokenFile:
    with TokenFileWriter(folder) as writer:
        for sample in samples():
            writer.add(sample)
        writer.finish({})
    return TokenFile(folder)


class ByHand:
    """The loss with a plain adapter whose output is masked by hand before the last invocation, a row at a time."""

    def __init__(self, base: Path, adapter: Path) -> None:
        config = LoraConfig.from_pretrained(str(adapter))
        config.alora_invocation_tokens, config.inference_mode = None, False
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        self.model = PeftModel.from_pretrained(model, adapter, config=config, is_trainable=True)
        self._active = 0
        for module in self.model.modules():
            if isinstance(module, LoraLayer):
                module.lora_B["default"].register_forward_hook(self._mask)

    def _mask(self, _: Any, __: Any, output: Tensor) -> Tensor:
        return output * (torch.arange(output.shape[1]) >= self._active)[:, None]

    def loss(self, batch: list[Sample]) -> Tensor:
        """Return the mean over all learned tokens."""
        losses = []
        for sample in batch:
            ids = sample.ids.tolist()
            starts = (place for place in range(len(ids) - 1) if tuple(ids[place : place + 2]) == INVOCATION)
            self._active = max(starts)
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, :-1]
            each = functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
            losses.append(each[torch.from_numpy(sample.learned[1:])])
        return torch.cat(losses).mean()


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Metrics], Path]:
    """What a run reported, which is evaluated between its steps, and its adapter."""
    folder = tmp_path_factory.mktemp("activated")
    shown: list[Metrics] = []
    tokens = tokens_of(folder / "tokens")
    model, _ = run_training(base, tokens, folder / "run", RECIPE, shown.append, valid=tokens, row_tokens=128)
    save_adapter(model, folder / "adapter")
    return shown, folder / "adapter"


def test_the_loss_is_of_the_base_model_before_the_invocation(base: Path, trained: tuple[list[Metrics], Path]) -> None:
    shown, adapter = trained
    found = [each.valid_loss for each in shown if each.valid_loss is not None]
    assert len(found) > 1
    assert found[-1] == min(found) < 0.95 * found[0]
    assert found[-1] == pytest.approx(ByHand(base, adapter).loss(list(samples())).item(), rel=1e-5)


def test_only_tokens_from_the_invocation_on_change_the_weights(base: Path, tmp_path: Path) -> None:
    """The gradient of a step, in padded micro-batches, equals the one that is computed by hand, row by row."""
    torch.manual_seed(RECIPE.seed)
    save_adapter(new_adapter(load_base(base, "none", torch.device("cpu")), RECIPE), tmp_path / "new")
    begun = ByHand(base, tmp_path / "new")
    begun.loss(list(samples())).backward()
    gradients = [each.grad for each in begun.model.parameters() if each.grad is not None]

    steps: list[Metrics] = []
    recipe = replace(RECIPE, epochs=1, batch_size=EXAMPLES)
    run_training(base, tokens_of(tmp_path / "tokens"), tmp_path / "run", recipe, steps.append, row_tokens=128)
    norm = torch.stack([each.norm() for each in gradients]).norm().item()
    assert [each.grad_norm for each in steps if each.grad_norm is not None] == [pytest.approx(norm, rel=1e-4)]


def test_the_engine_serves_the_result_as_peft_does(
    base: Path, trained: tuple[list[Metrics], Path], tmp_path: Path
) -> None:
    """The document before the invocation is the base model's, and read from its cache."""
    adapter = trained[1]
    assert json.loads((adapter / "adapter_config.json").read_text())["alora_invocation_tokens"] == list(INVOCATION)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    engine = LocalEngine(base, tmp_path / "cache", {"judge": adapter}, threads=1, block_size=8, kv_cache_tokens=512)
    try:
        document = list(range(40, 72))
        engine.result(engine.submit(document, cache_salt=SALT))
        prompt = [*document, *INVOCATION]
        request = engine.submit(prompt, "judge", cache_salt=SALT)
        first, *_ = engine.result(request)
        assert first.cached_tokens == len(document)
        assert engine.tokens(request) == greedy(model, prompt, 8, adapter) != engine.generate(prompt)
    finally:
        engine.close()


@pytest.mark.parametrize("kind", ["opt", "mixtral"])
def test_modules_that_peft_does_not_activate_are_rejected(kind: str) -> None:
    """OPT flattens the input of its feed-forward layers; all of a mixture's layers include its experts."""
    recipe = replace(RECIPE, alora_invocation_tokens=(7, 8))
    with pytest.raises(ValueError, match="cannot be trained on all `target_modules`"):
        new_adapter(make_model(kind), recipe)
    assert new_adapter(make_model(kind), replace(recipe, target_modules=("q_proj", "v_proj")))
