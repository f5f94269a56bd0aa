"""The adapter that a job starts from is untrusted: paths and module names in its config are never used."""

import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer

from loragate.adapter_store.base_model.layout import layout_of
from loragate.adapter_store.jobs.job import JobStart
from loragate.adapter_store.publishing.probe import no_probe
from loragate.finetune.data.formats import Method
from loragate.finetune.run.base_adapter import fetch_base_adapter
from loragate.finetune.training.adapter import continued_adapter, new_adapter
from loragate.finetune.training.base_model import load_base
from loragate.finetune.training.checkpoints.checkpoint import AdapterState, save_adapter
from tests.finetune.runs import RECIPES
from tests.finetune.worker_world import World

RECIPE = RECIPES[Method.SUPERVISED]
CPU = torch.device("cpu")


async def test_paths_and_modules_in_a_config_reach_no_loader(world: World, base: Path, tmp_path: Path) -> None:
    save_adapter(new_adapter(load_base(base, "none", CPU), RECIPE), tmp_path / "made")
    decoy = tmp_path / "decoy"
    decoy.mkdir()
    (decoy / "config.json").write_text("not valid JSON")
    config = json.loads((tmp_path / "made" / "adapter_config.json").read_text())
    hostile = {
        "base_model_name_or_path": str(decoy),
        "revision": "../..",
        "auto_mapping": {"base_model_class": "Popen", "parent_library": "subprocess"},
        "megatron_core": "nowhere.to_be_found",
        "eva_config": {"nothing": "known"},
        "loftq_config": "odd",
        "init_lora_weights": "eva",
        "fan_in_fan_out": "odd",
    }
    tensors = tmp_path / "made" / "adapter_model.safetensors"
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        written = json.dumps(config | hostile).encode()
        version = await scope.publisher.publish("old", written, tensors, probe=no_probe)
    start = JobStart("ad_1", "old", version.version, version.digest)
    layout = layout_of(world.manifest)
    folder = await fetch_base_adapter(world.store, world.tenant.id, start, layout, tmp_path / "start")

    left = json.loads((folder / "adapter_config.json").read_text())
    assert {name for name in hostile if name in left} == {"init_lora_weights"}
    assert left["init_lora_weights"] is True
    assert {name: left[name] for name in ("r", "lora_alpha", "target_modules")} == {
        name: config[name] for name in ("r", "lora_alpha", "target_modules")
    }
    model = continued_adapter(load_base(base, "none", CPU), RECIPE, folder)
    model.active_peft_config.base_model_name_or_path = str(decoy)
    state = AdapterState.capture(model)
    assert all("lora_" in name for name in state.tensors)
    assert (folder / "adapter_model.safetensors").read_bytes() == tensors.read_bytes()


async def test_patterns_that_re_matches_for_ever_reach_no_regex(world: World, base: Path, tmp_path: Path) -> None:
    made = LoraConfig(
        task_type="CAUSAL_LM",
        r=8,
        lora_alpha=16,
        target_modules=["q_proj", "v_proj", "up_proj"],
        rank_pattern={"v_proj": 4},
        alpha_pattern={"layers.1.self_attn.q_proj": 2},
    )
    model = get_peft_model(load_base(base, "none", CPU), made)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    save_adapter(model, tmp_path / "made")
    config = json.loads((tmp_path / "made" / "adapter_config.json").read_text())
    endless = {
        "target_modules": r"(.*)*x|model\.layers\.\d+\.(self_attn|mlp)\.[a-z]+_proj",
        "exclude_modules": r"(.*)*x|.*\.(k|o|gate|down)_proj",
        "rank_pattern": {"(.*)*x|v_proj": 4},
        "alpha_pattern": {r"(.*)*x|.*1\..*q_proj": 2},
    }
    tensors = tmp_path / "made" / "adapter_model.safetensors"
    async with world.store.tenant(world.tenant.id, write=True) as scope:
        version = await scope.publisher.publish("old", json.dumps(config | endless).encode(), tensors, probe=no_probe)
    start = JobStart("ad_1", "old", version.version, version.digest)
    folder = await fetch_base_adapter(
        world.store, world.tenant.id, start, layout_of(world.manifest), tmp_path / "start"
    )
    left = (folder / "adapter_config.json").read_text()
    assert "(.*)*" not in left
    assert all(name.endswith(("q_proj", "v_proj", "up_proj")) for name in json.loads(left)["target_modules"])

    loaded = continued_adapter(load_base(base, "none", CPU), RECIPE, folder)
    assert lora_scalings(loaded) == lora_scalings(model)
    again, before = AdapterState.capture(loaded).tensors, AdapterState.capture(model).tensors
    assert again.keys() == before.keys()
    assert all(torch.equal(again[name], before[name]) for name in before)


def lora_scalings(model: PeftModel) -> dict[str, tuple[int, float]]:
    return {
        name: (module.r["default"], module.scaling["default"])
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
