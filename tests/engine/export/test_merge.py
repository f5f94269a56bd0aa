"""A merged export equals what PEFT's `merge_and_unload` makes of the same checkpoint, bit for bit."""

import asyncio
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from thinned import thinned
from tiny_models import add_adapter, greedy, make_model
from transformers import AutoModelForCausalLM

from loragate.engine.adapters.files import AdapterFiles, AdapterUnavailable
from loragate.engine.adapters.weights.load import read_files
from loragate.engine.config import EngineConfig
from loragate.engine.export.exporter import Exporter, ExporterBusy
from loragate.engine.export.merge import NotMergeable
from loragate.engine.model.base_model import load_plain, prepare
from loragate.engine.model.manifest import layout, targets
from loragate.engine.sequence.request import AdapterKey
from loragate.peft_format.plan.layout import BaseLayout

BFLOAT16 = torch.bfloat16
CASES: dict[str, tuple[str, torch.dtype, dict[str, Any]]] = {
    "llama, bfloat16, patterns, rsLoRA": (
        "llama",
        BFLOAT16,
        {"r": 6, "use_rslora": True, "rank_pattern": {"q_proj": 3}, "alpha_pattern": {"v_proj": 5}},
    ),
    "gpt2, Conv1D, fan_in_fan_out, bfloat16": ("gpt2", BFLOAT16, {"r": 4, "fan_in_fan_out": True}),
    "llama, head": ("llama", torch.float32, {"r": 4, "target_modules": ["lm_head", "down_proj"]}),
    "qwen2": ("qwen2", torch.float32, {"r": 16}),
    "qwen2, float16": ("qwen2", torch.float16, {"r": 8}),
    "gpt2": ("gpt2", torch.float32, {"r": 4}),
    "phi3, fused": ("phi3", BFLOAT16, {"r": 4}),
}


def layout_of(folder: Path, cache: Path) -> BaseLayout:
    plain = load_plain(folder, EngineConfig(model=str(folder), listen="", cache_dir=cache, dtype="float32"))
    found = targets(plain)
    return layout(prepare(plain), found, 64)


class Folders:
    """Exports from a base model and adapters in folders, which are in the engine's cache."""

    def __init__(self, base: Path, root: Path) -> None:
        self.layout = layout_of(base, root)
        self.files = AdapterFiles[None](root / "adapters", self.layout, lambda *_: None, lambda key: [])
        self.exporter = Exporter(base, self.layout, self.files)

    def key(self, adapter: Path) -> AdapterKey:
        key = AdapterKey("tn_1", read_files(adapter, self.layout).digest)
        path = self.files._path(key)
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(adapter)
        self.files.tier.add(path)
        return key

    async def export(self, adapter: Path, to: Path) -> Path:
        async with self.exporter.export(self.key(adapter)) as export:
            data = b"".join([part async for part in export.parts()])
        assert len(data) == export.size
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(to, filter="data")
        return to


def base_folder(model_type: str, dtype: torch.dtype, folder: Path, **options: Any) -> Path:
    make_model(model_type, **options).to(dtype).save_pretrained(folder, max_shard_size="60KB")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "consolidated.safetensors").write_bytes(b"the same weights in another format")
    return folder


@pytest.mark.parametrize("case", thinned(list(CASES), list(CASES)[:3]))
async def test_the_weights_are_those_of_peft(case: str, tmp_path: Path) -> None:
    model_type, dtype, options = CASES[case]
    base = base_folder(model_type, dtype, tmp_path / "base")
    adapter = add_adapter(make_model(model_type), tmp_path / "adapter", seed=3, **options)
    merged = await Folders(base, tmp_path).export(adapter, tmp_path / "merged")

    plain = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    expected = PeftModel.from_pretrained(plain, adapter).merge_and_unload()
    found = AutoModelForCausalLM.from_pretrained(merged, dtype="auto")
    weights = found.state_dict()
    assert weights.keys() == expected.state_dict().keys()
    for name, weight in expected.state_dict().items():
        assert weights[name].dtype == weight.dtype == dtype
        assert torch.equal(weights[name], weight), name
    assert greedy(found, [5, 9, 13], 8) == greedy(expected, [5, 9, 13], 8)
    assert (merged / "tokenizer.json").read_text() == "{}"
    assert not (merged / "consolidated.safetensors").exists()
    assert sorted(p.name for p in merged.glob("*-of-*.safetensors")) == [p.name for p in sorted(base.glob("*-of-*"))]


async def test_what_cannot_be_merged_is_named(tmp_path: Path) -> None:
    base = base_folder("qwen2", torch.float32, tmp_path / "base", tie_word_embeddings=True)
    folders, model = Folders(base, tmp_path), make_model("qwen2", tie_word_embeddings=True)
    plain = add_adapter(model, tmp_path / "plain", seed=1, r=4)
    for options, words in (
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"alora_invocation_tokens": [7, 8]}, "aLoRA"),
        ({"bias": "lora_only"}, "biases"),
        ({"target_modules": ["lm_head", "q_proj"]}, "lm_head, which is tied"),
    ):
        adapter = add_adapter(model, tmp_path / words.split(",")[0], seed=1, r=4, **options)
        with pytest.raises(NotMergeable, match=words):
            await folders.export(adapter, tmp_path / "merged")
    assert (await folders.export(plain, tmp_path / "merged") / "config.json").is_file()

    with pytest.raises(AdapterUnavailable):
        async with folders.exporter.export(AdapterKey("tn_2", folders.files.keys()[0].digest)):
            pass


async def test_one_export_runs_at_a_time_and_an_abandoned_one_ends(tmp_path: Path) -> None:
    base = base_folder("llama", torch.float32, tmp_path / "base")
    folders = Folders(base, tmp_path)
    key = folders.key(add_adapter(make_model("llama"), tmp_path / "adapter", seed=1, r=4))
    async with folders.exporter.export(key) as first:
        assert await anext(first.parts())
        assert folders.files.tier.is_in_use(folders.files._path(key))
        with pytest.raises(ExporterBusy):
            async with folders.exporter.export(key):
                pass
    assert not folders.files.tier.is_in_use(folders.files._path(key))
    async with folders.exporter.export(key) as second:
        assert sum([len(part) async for part in second.parts()]) == second.size


async def test_an_export_is_slow_while_requests_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_folder("llama", torch.float32, tmp_path / "base")
    folders, paused = Folders(base, tmp_path), []

    async def sleep(seconds: float) -> None:
        paused.append(seconds)

    key = folders.key(add_adapter(make_model("llama"), tmp_path / "adapter", seed=1, r=4))
    for busy in (False, True):
        exporter = Exporter(base, folders.layout, folders.files, is_busy=lambda busy=busy: busy)  # type: ignore[misc]
        async with exporter.export(key) as export:
            with monkeypatch.context() as patched:
                patched.setattr(asyncio, "sleep", sleep)
                sizes = [len(part) async for part in export.parts()]
        assert len(paused) == (len(sizes) if busy else 0)
    limits = [size / (16 << 20) for size in sizes]
    assert all(pause <= limit for pause, limit in zip(paused, limits, strict=True))
