"""Packed rows: each sample's loss is the same as without packing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from thinned import thinned
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from loragate.finetune.data.encoding import Sample
from loragate.finetune.data.token_file import TokenFile, TokenFileWriter
from loragate.finetune.training.trainers.rows import IGNORED, PackedRows, concatenate_rows, ragged_row

VOCABULARY = 64


def samples(count: int, longest: int) -> list[Sample]:
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, longest + 1, count)
    return [Sample(draw.integers(0, VOCABULARY, n).astype(np.uint32), draw.random(n) < 0.6) for n in lengths]


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    with TokenFileWriter(tmp_path / "t") as writer:
        for sample in samples(40, 30):
            writer.add(sample)
        writer.finish({})
    return TokenFile(tmp_path / "t")


def test_positions_restart_and_first_tokens_have_no_label() -> None:
    row = ragged_row([Sample(np.array([5, 6, 7], np.uint32), np.array([True, True, False]))] * 2)
    assert row["input_ids"].tolist() == [5, 6, 7, 5, 6, 7]
    assert row["position_ids"].tolist() == [0, 1, 2, 0, 1, 2]
    assert row["labels"].tolist() == [IGNORED, 6, IGNORED] * 2


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_loss_of_a_row_is_that_of_its_samples(attention: str) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        initializer_range=0.5, attn_implementation=attention,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    alone = samples(5, 12)

    def summed(row: dict[str, torch.Tensor]) -> torch.Tensor:
        logits = model(input_ids=row["input_ids"], position_ids=row["position_ids"], use_cache=False).logits
        targets = row["labels"][:, 1:].flatten()
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), targets, ignore_index=IGNORED, reduction="sum"
        )

    with torch.no_grad():
        together = summed(concatenate_rows([ragged_row(alone[:2]), ragged_row(alone[2:])]))
        apart = sum(summed(concatenate_rows([ragged_row([sample])])) for sample in alone)
    torch.testing.assert_close(together, torch.as_tensor(apart), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("workers", thinned([0, 2], fast={0}))
def test_a_loader_returns_every_row_once(tokens: TokenFile, workers: int) -> None:
    rows = PackedRows(tokens, 64)
    loader = DataLoader(
        rows, batch_size=2, collate_fn=concatenate_rows, num_workers=workers,
        multiprocessing_context="spawn" if workers else None,
    )  # fmt: skip
    seen = sorted(token for batch in loader for token in batch["input_ids"].flatten().tolist())
    assert seen == sorted(token for index in range(len(tokens)) for token in tokens[index].ids.tolist())
    assert len(rows) < 40
