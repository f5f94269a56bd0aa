"""The adapter that a job starts from is untrusted: paths and module names in its config are never used."""

import json
from pathlib import Path

import torch

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
    folder = await fetch_base_adapter(world.store, world.tenant.id, start, tmp_path / "start")

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
