"""The plain form of an adapter changes the model as the adapter itself does."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE, read_files
from loragate.engine.vllm_backend.plain_adapter import write_plain
from loragate.engine.vllm_backend.random_adapters import write_random
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule

QUERY = TargetModule("layers.0.q_proj", ModuleKind.LINEAR, 16, 12)
OUT = TargetModule("layers.0.o_proj", ModuleKind.LINEAR, 12, 16)
EMBEDDING = TargetModule("embed_tokens", ModuleKind.EMBEDDING, 40, 16)
LAYOUT = BaseLayout(
    "llama", 1, {m.name: m for m in (EMBEDDING, QUERY, OUT)}, max_rank=16, input_embedding=EMBEDDING.name,
    serves=frozenset({AdapterKind.BLOCK_DIAGONAL, AdapterKind.EMBEDDING}),
)  # fmt: skip
DIAGONAL = {"use_bdlora": {"target_modules_bd_a": ["o_proj"], "nblocks": 2, "match_strict": False}}


@pytest.mark.parametrize(
    ("ranks", "config", "blocks", "scalings"),
    [
        ({QUERY: 4, OUT: 4}, {"lora_alpha": 12}, {}, {QUERY: 3.0, OUT: 3.0}),
        ({QUERY: 4, OUT: 4}, {"lora_alpha": 12, "use_rslora": True}, {}, {QUERY: 6.0, OUT: 6.0}),
        (
            {QUERY: 2, OUT: 8},
            {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"o_proj": 4}},
            {},
            {QUERY: 4.0, OUT: 0.5},
        ),
        ({QUERY: 4, OUT: 4}, DIAGONAL, {"o_proj": 2}, {QUERY: 1.0, OUT: 1.0}),
        ({EMBEDDING: 4}, {"lora_alpha": 8}, {}, {EMBEDDING: 2.0}),
    ],
)
def test_a_plain_adapter_has_scaling_one(
    ranks: dict[TargetModule, int],
    config: dict[str, object],
    blocks: dict[str, int],
    scalings: dict[TargetModule, float],
    tmp_path: Path,
) -> None:
    source = write_random(tmp_path / "source", ranks, 1, 0.5, config, blocks)
    plain = write_plain(source, read_files(source, LAYOUT).plan, LAYOUT, tmp_path / "plain")
    written = json.loads((plain.folder / CONFIG_FILE).read_text())
    assert written["r"] == written["lora_alpha"] == plain.rank == max(ranks.values())
    assert written.keys() == {"peft_type", "r", "lora_alpha", "bias", "target_modules"}
    before, after = load_file(source / TENSORS_FILE), load_file(plain.folder / TENSORS_FILE)
    assert before.keys() == after.keys()
    for module, scaling in scalings.items():
        names = [name for name in sorted(before) if module.name in name]
        a, b = (before[name] for name in names)
        if module.name.rpartition(".")[2] in blocks:
            a = torch.block_diag(*a.chunk(2))
        change = after[names[1]] @ after[names[0]]
        torch.testing.assert_close(change, scaling * (b @ a))
