"""The induction head works before any training."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from loragate.demo.initial_weights import set_induction_head


@pytest.fixture(scope="module")
def attentions() -> tuple[torch.Tensor, ...]:
    """Attention [layer][head, to, from] of a new model that reads forty tokens twice."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=500, hidden_size=384, intermediate_size=640, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, attn_implementation="eager",
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    set_induction_head(model)
    half = torch.randperm(500)[:40]
    with torch.inference_mode():
        found = model(input_ids=torch.cat([half, half])[None], output_attentions=True).attentions
    return tuple(layer[0] for layer in found)


def test_a_token_attends_to_the_one_before_it(attentions: tuple[torch.Tensor, ...]) -> None:
    shares = torch.stack([attentions[0][0, place, place - 1] for place in range(1, 80)])
    assert shares.median() > 0.8


def test_a_repeated_token_attends_behind_its_first_occurrence(
    attentions: tuple[torch.Tensor, ...],
) -> None:
    shares = torch.stack([attentions[1][0, 40 + place, place + 1] for place in range(38)])
    assert shares.median() > 10 / 80
