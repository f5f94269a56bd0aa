"""What is exported is what was trained: PEFT and the engine compute the trainer's logprobs with it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from thinned import thinned
from training_runs import compute, datum, load_in_peft, load_trainer, request, save_model

from loragate.engine.local import LocalEngine
from loragate.trainer.trainer import AdamParams, LoraSettings, Trainer, TrainingRejected

TYPES = ("llama", "gpt2", "gemma2", "qwen3_moe", "gpt_oss", "opt", "phi3")


def trained(trainer: Trainer, settings: LoraSettings) -> tuple[bytes, bytes]:
    trainer.create("run", settings)
    for step in range(2):
        compute(trainer, request("run", [datum(step, 30), datum(step + 5, 12)]))
        trainer.optim_step("run", AdamParams(learning_rate=1e-2))
    return trainer.export("run")


@pytest.mark.parametrize("model_type", thinned(TYPES, ("llama", "gpt2")))
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_peft_and_the_engine_compute_the_same(model_type: str, tied: bool, tmp_path: Path) -> None:
    model, base = save_model(tmp_path, model_type, tie_word_embeddings=tied)
    trainer = load_trainer(base)
    files = trained(trainer, LoraSettings(rank=3, seed=4))
    scored = datum(7, 40)
    scored.inputs["target_tokens"][:-1] = scored.tokens[1:]  # type: ignore[index]
    found = compute(trainer, request("run", [scored], forward_only=True))[0].outputs[0]["logprobs"][:-1]

    peft = load_in_peft(model, files, tmp_path / "adapter")
    with torch.inference_mode():
        logits = peft(input_ids=torch.from_numpy(scored.tokens)[None], use_cache=False).logits[0]
    expected = logits.log_softmax(dim=-1).gather(1, torch.from_numpy(scored.targets))[:-1, 0].numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)

    engine = LocalEngine(base, tmp_path / "cache", {"a": tmp_path / "adapter"}, threads=1, kv_cache_tokens=512)
    try:
        outputs = engine.result(engine.submit(scored.tokens.tolist(), "a", prompt_logprobs=0, max_tokens=0))
        served = [each for output in outputs if output.prompt_logprobs for each in output.prompt_logprobs.logprobs]
    finally:
        engine.close()
    assert np.abs(found - np.array(served)).mean() <= 1e-4


def test_an_exported_adapter_can_be_trained_further(tmp_path: Path) -> None:
    trainer = load_trainer(save_model(tmp_path, "llama")[1])
    files = trained(trainer, LoraSettings(rank=6, seed=4, train_mlp=False))
    trainer.create_from_adapter("again", *files)
    assert trainer.export("again") == files
    losses = compute(trainer, *(request(name, [datum(1, 20)]) for name in ("run", "again")))
    assert losses[0].metrics == losses[1].metrics


def test_ranks_and_scalings_of_single_modules_are_kept(tmp_path: Path) -> None:
    model, base = save_model(tmp_path, "llama")
    trainer = load_trainer(base)
    config, tensors = trained(trainer, LoraSettings(rank=4, seed=4, train_unembed=False))
    names = {"q_proj": (2, 1.0), "down_proj": (4, 8.0)}
    facts = json.loads(config) | {
        "target_modules": list(names),
        "rank_pattern": {"q_proj": 2},
        "alpha_pattern": {"q_proj": 2.0},
    }
    kept = {key: value for key, value in load(tensors).items() if key.split(".")[-3] in names}
    for key, value in kept.items():
        if "q_proj" in key:
            kept[key] = (value[:2] if "lora_A" in key else value[:, :2]).contiguous()
    trainer.create_from_adapter("mixed", json.dumps(facts).encode(), save(kept))
    scored = datum(3, 20)
    found = compute(trainer, request("mixed", [scored]))[0].outputs[0]["logprobs"]
    peft = load_in_peft(model, trainer.export("mixed"), tmp_path / "mixed")
    logits = peft(input_ids=torch.from_numpy(scored.tokens)[None], use_cache=False).logits[0].detach()
    expected = logits.log_softmax(dim=-1).gather(1, torch.from_numpy(scored.targets))[:, 0].numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert {shape.rank for shape in trainer._runs["mixed"].shapes.values()} == {2, 4}


@pytest.mark.parametrize(
    "change",
    [
        {"use_dora": True},
        {"bias": "all"},
        {"lora_bias": True},
        {"modules_to_save": ["lm_head"]},
        {"target_modules": ["embed_tokens"]},
        {"r": 400},
        {"peft_type": "IA3"},
    ],
    ids=str,
)
def test_other_adapters_are_rejected(change: dict[str, object], tmp_path: Path) -> None:
    trainer = load_trainer(save_model(tmp_path, "qwen2")[1])
    trainer.create("run", LoraSettings(rank=2, seed=1))
    config, tensors = trainer.export("run")
    with pytest.raises(TrainingRejected, match=r"^adapter: "):
        trainer.create_from_adapter("other", json.dumps(json.loads(config) | change).encode(), tensors)
    with pytest.raises(TrainingRejected, match=r"^adapter: "):
        trainer.create_from_adapter("other", config, tensors[:100])
    assert trainer.run_ids == ("run",)
