"""Tiny random models of every tested architecture, random PEFT adapters, and their expected outputs."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.variants import get_alora_offsets_for_generate
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

VOCABULARY = 96

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,  # spreads the logits: near-ties between tokens would make tests depend on luck
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_GQA = {"num_key_value_heads": 2}
_UNTIED = {"tie_word_embeddings": False}  # with random embeddings, a tied head only repeats the last token

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _COMMON | _GQA,
    "mistral": _COMMON | _GQA | {"sliding_window": 24},
    "qwen2": _COMMON | _GQA,
    "qwen3": _COMMON | _GQA | {"head_dim": 8},
    "gemma2": _COMMON | _GQA | _UNTIED | {"head_dim": 8, "sliding_window": 24, "query_pre_attn_scalar": 8},
    "gemma3_text": _COMMON | _GQA | _UNTIED | {"head_dim": 8, "sliding_window": 24, "query_pre_attn_scalar": 8,
                                     "layer_types": ["sliding_attention", "full_attention"]},
    "phi3": _COMMON | _GQA | {"original_max_position_embeddings": 512},
    "gpt2": {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512,
             "initializer_range": 0.4, "bos_token_id": 1, "eos_token_id": 2},
    "olmo2": _COMMON | _GQA,
    "gpt_neox": _COMMON | {"rotary_pct": 0.5},
    "opt": {key: value for key, value in _COMMON.items() if key not in ("intermediate_size", "initializer_range")}
    | {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.4},
    "mixtral": _COMMON | _GQA | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24},
    "qwen3_moe": _COMMON | _GQA | {"head_dim": 8, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": True,
                                   "moe_intermediate_size": 24, "decoder_sparse_step": 2},
    "gpt_oss": _COMMON | _GQA | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 24,
                                 "layer_types": ["sliding_attention", "full_attention"],
                                 "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                                     "original_max_position_embeddings": 128}},
}  # fmt: skip

ATTENTION_TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
TARGETS: dict[str, list[str]] = {
    "gpt2": ["c_attn", "attn.c_proj", "c_fc"],
    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "gpt_neox": ["query_key_value", "attention.dense", "dense_h_to_4h"],
    "opt": ["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"],
    "mixtral": ATTENTION_TARGETS,
    "qwen3_moe": ATTENTION_TARGETS,
    "gpt_oss": ATTENTION_TARGETS,
}
LLAMA_TARGETS = [*ATTENTION_TARGETS, "gate_proj", "up_proj", "down_proj"]


def make_model(model_type: str, **overrides: Any) -> PreTrainedModel:
    """Return a random model in float32."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **CONFIGS[model_type] | overrides)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():  # biases: zeros would hide a mistake
                parameter.normal_(std=0.2)
    return model.eval()


def add_adapter(model: PreTrainedModel, directory: Path, seed: int, std: float = 0.08, **options: Any) -> Path:
    """Save a random adapter with PEFT, with no value at its initialization. The model is not changed."""
    torch.manual_seed(seed)
    options.setdefault("target_modules", TARGETS.get(model.config.model_type, LLAMA_TARGETS))
    options.setdefault("lora_alpha", 2 * options.get("r", 8))
    config = LoraConfig(init_lora_weights=False, task_type="CAUSAL_LM", **options)
    peft_model = get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for name, parameter in peft_model.named_parameters():
            if "lora_magnitude_vector" in name:
                parameter.mul_(torch.empty_like(parameter).uniform_(0.7, 1.3))
            elif "lora_" in name:
                parameter.normal_(std=std)
            elif parameter.requires_grad:  # biases, whole modules, rows of the embedding
                parameter.add_(torch.empty_like(parameter).normal_(std=0.2))
    peft_model.save_pretrained(directory)
    return directory


_MOST_KEPT = 8
_kept: WeakKeyDictionary[PreTrainedModel, dict[tuple[object, ...], PeftModel]] = WeakKeyDictionary()


def _with_adapter(model: PreTrainedModel, adapter: Path) -> Any:
    """Return a copy of the model with the adapter applied by PEFT. Making it takes longer than a few tokens do; it is
    kept until the adapter, a weight or the configuration changes."""
    weights = tuple((id(each), each.data_ptr(), each._version) for each in (*model.parameters(), *model.buffers()))
    files = tuple(file.read_bytes() for file in sorted(adapter.iterdir()) if file.is_file())
    key = (model.config.to_json_string(), weights, files)
    kept = _kept.setdefault(model, {})
    if key not in kept:
        while len(kept) >= _MOST_KEPT:
            del kept[next(iter(kept))]
        kept[key] = PeftModel.from_pretrained(copy.deepcopy(model), adapter)
    return kept[key]


def final_states(model: PreTrainedModel, prompt: Sequence[int], adapter: Path | None = None) -> Tensor:
    """Return transformers' last hidden states [tokens, hidden], with the adapter applied by PEFT."""
    oracle: Any = model if adapter is None else _with_adapter(model, adapter).get_base_model()
    inner = getattr(oracle, oracle.base_model_prefix).eval()
    with torch.inference_mode():
        states: Tensor = inner(input_ids=torch.tensor([list(prompt)]), use_cache=False).last_hidden_state[0]
    return states


def prompt_logprobs(model: PreTrainedModel, prompt: Sequence[int], adapter: Path | None = None) -> Tensor:
    """Return transformers' logprobs [tokens - 1, vocabulary] in place of each token but the first, with the adapter
    applied by PEFT, in double precision where transformers has it. The model is not changed."""
    oracle: Any = copy.deepcopy(model)
    if adapter is not None:
        oracle = PeftModel.from_pretrained(oracle, adapter)
    mixture = {"num_experts", "num_local_experts"} & model.config.to_dict().keys()  # their products are of floats
    oracle = oracle.eval() if mixture else oracle.double().eval()
    tokens = torch.tensor([list(prompt)])
    extra = {} if adapter is None else get_alora_offsets_for_generate(oracle, input_ids=tokens)
    extra.pop("input_ids", None)
    with torch.inference_mode():
        logits: Tensor = oracle(input_ids=tokens, use_cache=False, **extra).logits[0, :-1]
    return logits.double().log_softmax(dim=-1)


def greedy(
    model: PreTrainedModel,
    prompt: Sequence[int],
    new_tokens: int,
    adapter: Path | None = None,
    draft: Sequence[int] = (),
) -> list[int]:
    """Return the greedy tokens of transformers with the adapter applied by PEFT. The model is not changed.

    A draft, such as the tokens to be checked, saves time and changes no token: one pass over it finds how many of its
    tokens are the greedy ones. Those after the first other one are computed one by one.
    """
    oracle: Any = model if adapter is None else _with_adapter(model, adapter)
    oracle.eval()
    tokens = torch.tensor([list(prompt)])
    extra = {} if adapter is None else get_alora_offsets_for_generate(oracle, input_ids=tokens)
    extra.pop("input_ids", None)
    out: list[int] = []
    if draft and not extra:  # an activated adapter would look for its invocation in the draft, too
        out = _verify(oracle, prompt, draft[:new_tokens])
        tokens = torch.tensor([[*prompt, *out]])
    cache = None
    with torch.inference_mode():
        while len(out) < new_tokens:
            result = oracle(input_ids=tokens, past_key_values=cache, use_cache=True, **extra)
            cache = result.past_key_values
            out.append(int(result.logits[0, -1].argmax()))
            tokens = torch.tensor([out[-1:]])
    return out


def _verify(oracle: Any, prompt: Sequence[int], draft: Sequence[int]) -> list[int]:
    """Return the draft's first tokens, as far as they are the greedy ones, and the greedy token after those."""
    with torch.inference_mode():
        logits = oracle(input_ids=torch.tensor([[*prompt, *draft[:-1]]]), use_cache=False).logits[0]
    best: list[int] = logits[len(prompt) - 1 :].argmax(dim=-1).tolist()
    right = next((i for i, (ours, its) in enumerate(zip(best, draft, strict=True)) if ours != its), len(draft) - 1)
    return best[: right + 1]


def classifier_model(model: PreTrainedModel, task: str, labels: int) -> Any:
    """Return transformers' class for the task over the model's weights, with a random head; None if it has none."""
    auto = AutoModelForSequenceClassification if task == "SEQ_CLS" else AutoModelForTokenClassification
    config = copy.deepcopy(model.config)
    config.num_labels = labels
    if type(config) not in auto._model_mapping:
        return None
    made = auto.from_config(config, attn_implementation="eager", dtype=torch.float32)
    inner = model.base_model_prefix
    getattr(made, inner).load_state_dict(getattr(model, inner).state_dict())
    return made.eval()


def add_classifier(
    model: PreTrainedModel, directory: Path, seed: int, labels: int, task: str = "SEQ_CLS", **options: Any
) -> Path:
    """Save a random adapter with a head, with PEFT. `options` are of LoraConfig, `id2label` and `problem_type` of
    transformers' config."""
    extra = {name: options.pop(name) for name in ("id2label", "problem_type") if name in options}
    torch.manual_seed(seed)
    options.setdefault("target_modules", TARGETS.get(model.config.model_type, LLAMA_TARGETS))
    made = classifier_model(model, task, labels)
    peft_model = get_peft_model(made, LoraConfig(init_lora_weights=False, task_type=task, **options))
    with torch.no_grad():
        for name, parameter in peft_model.named_parameters():
            if "lora_magnitude_vector" in name:
                parameter.mul_(torch.empty_like(parameter).uniform_(0.7, 1.3))
            elif parameter.requires_grad:
                parameter.normal_(std=0.08 if "lora_" in name else 0.3)
    peft_model.save_pretrained(directory)
    config = directory / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | extra))
    return directory


def class_logits(model: PreTrainedModel, prompt: Sequence[int], adapter: Path) -> Tensor:
    """Return the logits of PEFT and transformers' class for the adapter's task: [labels], or [tokens, labels]."""
    task = json.loads((adapter / "adapter_config.json").read_text())["task_type"]
    tensors = load_file(adapter / "adapter_model.safetensors")
    (head,) = (t for name, t in tensors.items() if name.endswith(("score.weight", "classifier.weight")))
    oracle = PeftModel.from_pretrained(classifier_model(model, task, head.shape[0]), adapter).eval()
    with torch.inference_mode():
        logits: Tensor = oracle(input_ids=torch.tensor([list(prompt)]), use_cache=False).logits[0]
    return logits
