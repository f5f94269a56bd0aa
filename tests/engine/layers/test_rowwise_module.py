"""Embeddings and norms with other parameters for some rows, and no overhead when there are none."""

import pytest
import torch
from torch import Tensor, nn

from loragate.engine.layers.forward_context import ForwardContext, StepBatch
from loragate.engine.layers.row_patches import EmbeddingLora, OwnParameters, OwnVectors
from loragate.engine.layers.rowwise_module import RowPatch, SlotModule
from loragate.kernels.segments import Segment

VOCABULARY, DIM, ROWS = 12, 4, 6
MINE, OTHERS = Segment(2, 1, 3), Segment(0, 4, 6)
IDS = torch.tensor([[3, 7, 8, 7, 3, 8]])


class Scaled(nn.Embedding):
    """An embedding that scales its output, as Gemma's does."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * 3


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def run(module: nn.Module, x: Tensor, patches: dict[int, RowPatch], rows_dim: int = 1) -> Tensor:
    step = ForwardContext()
    slots = SlotModule(module, rows_dim, step)
    for slot, patch in patches.items():
        slots.put(slot, patch.on(patch.tensors))
    rows = torch.arange(ROWS)
    segments = (MINE, OTHERS)
    with torch.inference_mode(), step.running(StepBatch(rows, rows, rows, None, (), segments, rows[-1:], ())):
        y: Tensor = module(x)
    for slot in patches:
        slots.clear(slot)
    assert not module._forward_hooks, "it is called as if we were not there"
    return y


@pytest.fixture
def embedding() -> Scaled:
    return Scaled(VOCABULARY, DIM, padding_idx=0)


def expect(embedding: Scaled, mine: dict[int, Tensor]) -> Tensor:
    """Return the module's own vectors, except those given by row, before scaling."""
    weight = embedding.weight.detach()
    vectors = [mine.get(row, weight[token]) for row, token in enumerate(IDS[0].tolist())]
    return torch.stack(vectors)[None] * 3


def test_adapter_vectors_for_some_tokens(embedding: Scaled) -> None:
    vectors = random(2, DIM)
    y = run(embedding, IDS, {2: OwnVectors(torch.tensor([7, 11]), vectors)})
    assert torch.equal(y, expect(embedding, {1: vectors[0]})), "row 3 has token 7 too, but no adapter"


def test_an_adapter_with_its_own_vocabulary(embedding: Scaled) -> None:
    weight = random(VOCABULARY, DIM)
    y = run(embedding, IDS, {2: OwnParameters({"weight": weight})})
    assert torch.equal(y, expect(embedding, {1: weight[7], 2: weight[8]}))


def test_low_rank(embedding: Scaled) -> None:
    a, b, scale = random(VOCABULARY, 2), random(2, DIM), random(DIM)
    y = run(embedding, IDS, {2: EmbeddingLora(a, b), 0: EmbeddingLora(a, b, scale)})
    own = embedding.weight.detach()
    mine = {row: own[IDS[0, row]] + a[IDS[0, row]] @ b for row in (1, 2)}
    others = {row: own[IDS[0, row]] * scale + a[IDS[0, row]] @ b for row in (4, 5)}
    assert torch.allclose(y, expect(embedding, mine | others), atol=1e-5)


def test_nan_stays_in_its_rows(embedding: Scaled) -> None:
    nan = torch.full((VOCABULARY, DIM), float("nan"))
    for patch in (OwnParameters({"weight": nan}), OwnVectors(torch.arange(VOCABULARY), nan)):
        y = run(embedding, IDS, {2: patch})[0]
        assert y[1:3].isnan().all()
        assert y[[0, 3, 4, 5]].isfinite().all()


@pytest.mark.parametrize("rows_dim", [1, 2])
def test_norms_by_row_for_any_leading_dimensions(rows_dim: int) -> None:
    norm = nn.LayerNorm(DIM)
    x = random(1, ROWS, 3, DIM) if rows_dim == 1 else random(1, 3, ROWS, DIM)
    bias = random(DIM)
    y = run(norm, x, {2: OwnParameters({"bias": bias})}, rows_dim)
    gained = (y - norm(x).detach()).transpose(1, rows_dim)[0]
    assert torch.allclose(gained[1:3], bias.expand(2, 3, DIM), atol=1e-5)
    assert (gained[[0, 3, 4, 5]] == 0).all()
