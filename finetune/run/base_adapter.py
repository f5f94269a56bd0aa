"""The adapter version that a job continues from: the hyperparameters that it fixes, and its files on this machine."""

import asyncio
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from loragate.adapter_store.blobs.blobs import CONFIG_FILE, TENSORS_FILE, StoredAdapter
from loragate.adapter_store.errors import Failure, Unavailable
from loragate.adapter_store.jobs.job import Job, JobStart
from loragate.adapter_store.store import Store
from loragate.finetune.errors import JobRejected
from loragate.finetune.jobs.hyperparameters import Hyperparameters
from loragate.finetune.jobs.recipe import Recipe
from loragate.peft_format.classification import Task
from loragate.peft_format.config.fields import FIELDS, Served
from loragate.peft_format.config.lora_config import LoraConfig, parse_config
from loragate.peft_format.errors import AdapterRejected
from loragate.peft_format.plan.layout import BaseLayout
from loragate.peft_format.plan.without_patterns import without_patterns

_FIXED: Mapping[str, tuple[str, Any]] = {  # hyperparameter: its name and default in PEFT's config
    "lora_rank": ("r", 8),
    "lora_alpha": ("lora_alpha", 8),
    "use_rslora": ("use_rslora", False),
    "use_dora": ("use_dora", False),
}


async def constrain_to_base_adapter(
    store: Store, tenant_id: str, job: Job, asked: Hyperparameters, recipe: Recipe
) -> Recipe:
    """Return the recipe with the hyperparameters that the base adapter fixes. Raise JobRejected, StoreError."""
    if job.request.start is None:
        return recipe
    stored = await _open(store, tenant_id, job.request.start)
    config = json.loads(stored.config_json)
    classifies = config.get("task_type") in set(Task)
    if config.get("peft_type", "LORA") != "LORA" or config.get("alora_invocation_tokens") or classifies:
        raise JobRejected(Failure("invalid_model", "Training can only continue from plain LoRA adapters.", "model"))
    fixed = {name: config.get(*known) for name, known in _FIXED.items()}
    path = f"method.{job.request.method}.hyperparameters"
    for name, value in fixed.items():
        _require_equal(name, getattr(asked, name), value, asked, path)
    targets = config.get("target_modules") or ()
    wanted = asked.target_modules
    if not isinstance(wanted, str):
        _require_equal("target_modules", sorted(wanted), sorted(targets), asked, path)
    return replace(recipe, **fixed, target_modules=targets if isinstance(targets, str) else tuple(sorted(targets)))


async def fetch_base_adapter(store: Store, tenant_id: str, start: JobStart, layout: BaseLayout, folder: Path) -> Path:
    """Write PEFT's two files to `folder`, unless they are there already, and return it. Raise JobRejected, StoreError,
    OSError.

    The config is reduced to the settings that affect computation, and its patterns to names of the base model's
    modules. Anything else that a tenant may have put there, such as the path of a base model, a module to import or an
    expression that `re` matches for hours, never reaches the libraries that load it.
    """
    if await asyncio.to_thread(folder.is_dir):
        return folder
    stored = await _open(store, tenant_id, start)
    draft = folder.with_suffix(".tmp")
    await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        config = await asyncio.to_thread(_trainable_config, stored.config_json, layout)
    except AdapterRejected as rejected:
        message = f"Training cannot continue from `{start.name}:{start.version}`: {rejected.message}"
        raise JobRejected(Failure("invalid_model", message, "model")) from None
    (draft / CONFIG_FILE).write_bytes(config)
    with (draft / TENSORS_FILE).open("wb") as file:
        async for chunk in stored.tensors:
            await asyncio.to_thread(file.write, chunk)
    return draft.rename(folder)


def _trainable_config(config_json: bytes, layout: BaseLayout) -> bytes:
    served = {name: value for name, value in json.loads(config_json).items() if isinstance(FIELDS.get(name), Served)}
    plain = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "init_lora_weights": True}
    return json.dumps(served | plain | _names_and_keys(without_patterns(parse_config(config_json), layout))).encode()


def _names_and_keys(config: LoraConfig) -> dict[str, Any]:
    """Return every field that PEFT compares with the names of modules, but for the input embedding's."""
    return {
        "target_modules": config.target_modules,
        "exclude_modules": config.exclude_modules or None,
        "layers_to_transform": None,
        "layers_pattern": None,
        "rank_pattern": dict(config.rank_pattern),
        "alpha_pattern": dict(config.alpha_pattern),
        "target_parameters": config.target_parameters or None,
        "modules_to_save": config.modules_to_save or None,
        "ensure_weight_tying": config.ensure_weight_tying,
    }


async def _open(store: Store, tenant_id: str, start: JobStart) -> StoredAdapter:
    try:
        return await store.open_adapter(tenant_id, start.digest)
    except LookupError:
        message = f"`{start.name}:{start.version}`, from which the job continues, no longer exists."
        raise JobRejected(Failure("model_not_found", message, "model")) from None
    except OSError as error:
        raise Unavailable("The adapter from which the job continues cannot be read.") from error


def _require_equal(name: str, wanted: Any, has: Any, asked: Hyperparameters, path: str) -> None:
    if name in asked.model_fields_set and wanted not in ("auto", has):
        message = f"The adapter from which the job continues fixes `{name}` at {has}: leave it out."
        raise JobRejected(Failure("invalid_hyperparameters", message, f"{path}.{name}"))
