"""Every kind of adapter that PEFT saves: a model changed as planned computes the same as PEFT's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from peft.tuners.lora.config import BdLoraConfig, MontecloraConfig
from peft_outputs import logits, output_by_peft, output_by_plan, read

from loragate.peft_format.kinds import AdapterKind as Kind

ATTENTION = ["q_proj", "v_proj"]
BLOCKS = BdLoraConfig(target_modules_bd_a=["o_proj", "down_proj"], target_modules_bd_b=["q_proj"], nblocks=4)
LOOSE = BdLoraConfig(target_modules_bd_b=["q_proj"], nblocks=2, match_strict=False)

CASES: dict[str, tuple[str, dict[str, Any], set[Kind]]] = {
    "dora": ("llama", {"target_modules": "all-linear", "use_dora": True}, {Kind.DORA}),
    "dora, biased base": ("qwen2", {"target_modules": ["q_proj", "o_proj"], "use_dora": True}, {Kind.DORA}),
    "dora, conv1d": ("gpt2", {"target_modules": ["c_attn", "c_fc"], "use_dora": True}, {Kind.DORA}),
    "dora, fused": ("phi3", {"target_modules": ["qkv_proj", "gate_up_proj"], "use_dora": True}, {Kind.DORA}),
    "dora, rank-stabilised": (
        "llama",
        {"target_modules": ATTENTION, "use_dora": True, "use_rslora": True, "rank_pattern": {"v_proj": 3}},
        {Kind.DORA},
    ),
    "dora, head": (
        "tied_llama",
        {"target_modules": ["lm_head", "q_proj"], "use_dora": True},
        {Kind.DORA, Kind.BASE_COPIES},
    ),
    "embedding": ("llama", {"target_modules": ["embed_tokens", "q_proj"]}, {Kind.EMBEDDING, Kind.BASE_COPIES}),
    "embedding, gpt2": ("gpt2", {"target_modules": ["wte", "wpe", "c_attn"]}, {Kind.EMBEDDING}),
    "embedding that scales": ("gemma3", {"target_modules": ["embed_tokens"]}, {Kind.EMBEDDING, Kind.BASE_COPIES}),
    "embedding, dora": (
        "gemma3",
        {"target_modules": ["embed_tokens", "q_proj"], "use_dora": True},
        {Kind.EMBEDDING, Kind.DORA, Kind.BASE_COPIES},
    ),
    "embedding, tied": ("tied_llama", {"target_modules": ["embed_tokens"]}, {Kind.EMBEDDING, Kind.BASE_COPIES}),
    "head": ("llama", {"target_modules": ["lm_head"]}, {Kind.BASE_COPIES}),
    "head, tied": ("tied_llama", {"target_modules": ["lm_head", "q_proj"]}, {Kind.BASE_COPIES}),
    "both ends, tied base": (
        "tied_llama",
        {"target_modules": ["embed_tokens", "lm_head"]},
        {Kind.EMBEDDING, Kind.BASE_COPIES},
    ),
    "both ends, kept tied": (
        "tied_llama",
        {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True},
        {Kind.EMBEDDING, Kind.BASE_COPIES},
    ),
    "both ends, kept tied, by pattern": (
        "tied_llama",
        {"target_modules": r".*\.q_proj|lm_head", "ensure_weight_tying": True, "lora_alpha": 3},
        {Kind.EMBEDDING, Kind.BASE_COPIES},
    ),
    "both ends, kept tied, dora": (
        "tied_llama",
        {"target_modules": ["embed_tokens", "lm_head"], "ensure_weight_tying": True, "use_dora": True},
        {Kind.EMBEDDING, Kind.DORA, Kind.BASE_COPIES},
    ),
    "kept tied, nothing tied": (
        "llama",
        {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
        {Kind.EMBEDDING, Kind.BASE_COPIES},
    ),
    "saved head": ("llama", {"target_modules": ATTENTION, "modules_to_save": ["lm_head"]}, {Kind.REPLACED}),
    "saved head, tied": ("tied_llama", {"target_modules": ATTENTION, "modules_to_save": ["lm_head"]}, {Kind.REPLACED}),
    "saved embedding, tied": (
        "tied_llama",
        {"target_modules": ATTENTION, "modules_to_save": ["embed_tokens"]},
        {Kind.REPLACED},
    ),
    "saved ends, kept tied": (
        "tied_llama",
        {"target_modules": ATTENTION, "modules_to_save": ["lm_head"], "ensure_weight_tying": True},
        {Kind.REPLACED},
    ),
    "saved norms": ("gpt2", {"target_modules": ["c_attn"], "modules_to_save": ["ln_f", "ln_1"]}, {Kind.REPLACED}),
    "saved by part of a name": ("llama", {"target_modules": ATTENTION, "modules_to_save": ["norm"]}, {Kind.REPLACED}),
    "saved block": ("gpt2", {"target_modules": ["c_attn"], "modules_to_save": ["h.1.mlp"]}, {Kind.REPLACED}),
    "saved block, else targeted": (
        "llama",
        {"target_modules": "all-linear", "modules_to_save": ["mlp"]},
        {Kind.REPLACED},
    ),
    "saved instead of targeted": (
        "llama",
        {"target_modules": ["q_proj", "embed_tokens", "lm_head"], "modules_to_save": ["lm_head"]},
        {Kind.REPLACED, Kind.EMBEDDING, Kind.BASE_COPIES},
    ),
    "tokens": ("llama", {"target_modules": ATTENTION, "trainable_token_indices": [41, 5]}, {Kind.TRAINED_TOKENS}),
    "tokens, tied": (
        "tied_llama",
        {"target_modules": ATTENTION, "trainable_token_indices": [41, 5]},
        {Kind.TRAINED_TOKENS},
    ),
    "tokens, tied gpt2": (
        "tied_gpt2",
        {"target_modules": ["c_attn"], "trainable_token_indices": [5, 2]},
        {Kind.TRAINED_TOKENS},
    ),
    "tokens, scaled": ("gemma3", {"target_modules": ATTENTION, "trainable_token_indices": [5]}, {Kind.TRAINED_TOKENS}),
    "tokens of both ends": (
        "llama",
        {"target_modules": ATTENTION, "trainable_token_indices": {"embed_tokens": [5, 3], "lm_head": [7]}},
        {Kind.TRAINED_TOKENS},
    ),
    "other tokens of tied ends": (
        "tied_llama",
        {"target_modules": ATTENTION, "trainable_token_indices": {"embed_tokens": [5, 3], "lm_head": [7]}},
        {Kind.TRAINED_TOKENS},
    ),
    "the same tokens of tied ends": (
        "tied_llama",
        {"target_modules": ATTENTION, "trainable_token_indices": {"lm_head": [3, 5], "embed_tokens": [3, 5]}},
        {Kind.TRAINED_TOKENS},
    ),
    "tokens of a tied head": (
        "tied_llama",
        {"target_modules": ATTENTION, "trainable_token_indices": {"lm_head": [3, 5]}},
        {Kind.TRAINED_TOKENS},
    ),
    "tokens of a tied head with LoRA": (
        "tied_llama",
        {"target_modules": ["q_proj", "lm_head"], "trainable_token_indices": [41, 5]},
        {Kind.TRAINED_TOKENS},
    ),
    "tokens alone": (
        "tied_llama",
        {"target_modules": "dummy-target-modules", "trainable_token_indices": [41, 5]},
        {Kind.TRAINED_TOKENS},
    ),
    "all biases": ("qwen2", {"target_modules": ["q_proj", "o_proj"], "bias": "all"}, {Kind.BIAS}),
    "all biases, norms": ("gpt2", {"target_modules": ["c_attn"], "bias": "all"}, {Kind.BIAS}),
    "all biases, router": (
        "gpt_oss",
        {"target_modules": ["q_proj"], "target_parameters": ["router.weight"], "bias": "all"},
        {Kind.BIAS, Kind.PARAMETERS},
    ),
    "biases of targets": ("gpt2", {"target_modules": ["c_attn"], "bias": "lora_only"}, {Kind.BIAS}),
    "biases of targets, dora": (
        "gpt2",
        {"target_modules": ["c_attn", "c_fc"], "bias": "lora_only", "use_dora": True},
        {Kind.BIAS, Kind.DORA},
    ),
    "biases of base and B": ("qwen2", {"target_modules": ["q_proj"], "bias": "all", "lora_bias": True}, {Kind.BIAS}),
    "biases and saved modules": (
        "gpt2",
        {"target_modules": ["c_attn"], "bias": "all", "modules_to_save": ["ln_f", "mlp.c_proj"]},
        {Kind.BIAS, Kind.REPLACED},
    ),
    "blocks": (
        "llama",
        {"target_modules": ["q_proj", "o_proj", "down_proj"], "use_bdlora": BLOCKS},
        {Kind.BLOCK_DIAGONAL},
    ),
    "blocks of some": ("llama", {"target_modules": ["q_proj", "k_proj"], "use_bdlora": LOOSE}, {Kind.BLOCK_DIAGONAL}),
    "velora": ("llama", {"target_modules": ATTENTION, "velora_config": peft.VeloraConfig(num_groups=4)}, set()),
    "monteclora": ("llama", {"target_modules": ATTENTION, "monteclora_config": MontecloraConfig()}, set()),
    "mica": ("llama", {"target_modules": ATTENTION, "init_lora_weights": "mica"}, set()),
    "qalora": ("llama", {"target_modules": ATTENTION, "use_qalora": True}, set()),
    "a linear's weight": (
        "qwen2",
        {"target_modules": [], "target_parameters": ["q_proj.weight", "model.layers.1.mlp.up_proj.weight"]},
        set(),
    ),
    "mixtral": ("mixtral", {"target_modules": "all-linear"}, {Kind.PARAMETERS}),
    "mixtral, old names": (
        "mixtral",
        {"target_modules": ["q_proj", "w1", "w2", "w3"], "lora_alpha": 5},
        {Kind.PARAMETERS},
    ),
    "mixtral, rank-stabilised": ("mixtral", {"target_modules": ["w1", "w3"], "use_rslora": True}, {Kind.PARAMETERS}),
    "mixtral, router": ("mixtral", {"target_modules": ["gate", "q_proj"]}, {Kind.PARAMETERS}),
    "mixtral, attention": ("mixtral", {"target_modules": ["q_proj"]}, set()),
    "mixtral, parameters": (
        "mixtral",
        {
            "target_modules": ["q_proj"],
            "target_parameters": ["experts.down_proj", "gate_up_proj"],
            "rank_pattern": {"gate_up_proj": 6, "layers.1.mlp.experts.down_proj": 2},
            "alpha_pattern": {"experts.gate_up_proj": 3},
        },
        {Kind.PARAMETERS},
    ),
    "mixtral, one layer": (
        "mixtral",
        {"target_modules": [], "target_parameters": ["1.mlp.experts.gate_up_proj"]},
        {Kind.PARAMETERS},
    ),
    "qwen3 moe": ("qwen3_moe", {"target_modules": "all-linear"}, {Kind.PARAMETERS}),
    "qwen3 moe, pattern": ("qwen3_moe", {"target_modules": r".*\.(q_proj|gate_proj|up_proj|gate)"}, {Kind.PARAMETERS}),
    "qwen3 moe, down": (
        "qwen3_moe",
        {"target_modules": ["down_proj"], "modules_to_save": ["lm_head"]},
        {Kind.PARAMETERS, Kind.REPLACED},
    ),
    "gpt-oss": (
        "gpt_oss",
        {"target_modules": "all-linear", "target_parameters": ["gate_up_proj", "down_proj", "router.weight"]},
        {Kind.PARAMETERS},
    ),
    "gpt-oss, no modules": ("gpt_oss", {"target_modules": None, "target_parameters": ["down_proj"]}, {Kind.PARAMETERS}),
}

pytestmark = pytest.mark.filterwarnings("ignore")  # PEFT's warnings about tied weights and patterns that match nothing

BaseModel = Callable[[str], transformers.PreTrainedModel]


@pytest.mark.parametrize(("model_type", "fields", "kinds"), CASES.values(), ids=CASES.keys())
def test_the_plan_computes_the_same_as_peft(
    make_adapter: Any, base_model: BaseModel, tmp_path: Path, model_type: str, fields: dict[str, Any], kinds: set[Kind]
) -> None:
    upload = make_adapter(model_type, save_embedding_layers="auto", **{"r": 4, "lora_alpha": 12, **fields})
    torch.manual_seed(1)
    plain = logits(base_model(model_type))

    plan = read(upload)

    expected = output_by_peft(upload, base_model(model_type), tmp_path)
    assert plan.kinds == kinds
    assert (expected - plain).abs().max() > 1e-3, "the adapter does something"
    torch.testing.assert_close(output_by_plan(plan, upload, base_model(model_type)), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("init", ["pissa", "olora"])
def test_a_converted_initialization_is_plain_lora(
    make_adapter: Any, base_model: BaseModel, tmp_path: Path, init: str
) -> None:
    """Saved as PEFT's guide describes, the adapter includes what its initialization took from the base model."""
    made = make_adapter("llama", target_modules=ATTENTION)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=4, lora_alpha=12, target_modules=ATTENTION, init_lora_weights=init
    )
    model = peft.get_peft_model(base_model("llama"), config)
    model.peft_config["default"].init_lora_weights = True  # as in the guide: prevents PEFT from doing it twice
    model.save_pretrained(tmp_path / "initial")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
    trained = logits(model)
    model.float().save_pretrained(tmp_path, path_initial_model_for_weight_conversion=str(tmp_path / "initial"))
    upload = replace(
        made,
        config=(tmp_path / "adapter_config.json").read_bytes(),
        tensors=(tmp_path / "adapter_model.safetensors").read_bytes(),
    )

    plan = read(upload)

    assert plan.max_rank == 8
    torch.testing.assert_close(output_by_plan(plan, upload, base_model("llama")), trained, rtol=1e-4, atol=1e-4)
