"""The device memory that a model's linears take once they are fused."""

import pytest
import torch
from tiny_models import make_model
from transformers.pytorch_utils import Conv1D

from loragate.engine.model.base_model import prepare
from loragate.kernels import packed_linear
from loragate.kernels.packed_linear import PackedLinear


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2"])
@torch.inference_mode()
def test_fused_weights_are_stored_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, which packs nothing: the model's own weights are views of the fused ones, with the same values."""
    monkeypatch.setattr(packed_linear, "_can_pack", lambda *_: False)
    model = make_model(family)
    before = {name: p.clone() for name, p in model.named_parameters()}
    base = prepare(model)
    for group in base.groups:
        assert isinstance(group.linear, PackedLinear)
        fused = group.linear._weight
        for member in group.members:
            own = member.base.weight.data
            rows = own.T if isinstance(member.base, Conv1D) else own
            assert torch.equal(rows, fused[member.out_start : member.out_start + member.out_features])
            assert own.untyped_storage().data_ptr() == fused.untyped_storage().data_ptr()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name
    taken = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
    assert sum(taken.values()) == sum(p.nbytes for p in {id(p): p for p in model.parameters()}.values())
