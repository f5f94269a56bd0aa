"""Tiny random base models, adapters that PEFT created and saved for them, and hand-made files."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np
import peft
import pytest
import torch
import transformers
from peft.tuners.lora import LoraLayer
from safetensors.numpy import save

from loragate.engine.model.manifest import targets
from loragate.peft_format.kinds import AdapterKind
from loragate.peft_format.plan.layout import BaseLayout, ModuleKind, TargetModule

_SMALL = {"vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_HIDDEN = {
    **_SMALL,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}

CONFIGS: dict[str, Callable[[], transformers.PreTrainedConfig]] = {
    "llama": lambda: transformers.LlamaConfig(**_HIDDEN, num_key_value_heads=2),
    "tied_llama": lambda: transformers.LlamaConfig(**_HIDDEN, tie_word_embeddings=True),
    "gpt2": lambda: transformers.GPT2Config(**_SMALL, n_embd=32, n_layer=3, n_head=4, tie_word_embeddings=False),
    "opt": lambda: transformers.OPTConfig(
        **_SMALL,
        hidden_size=32,
        ffn_dim=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        word_embed_proj_dim=32,
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**_HIDDEN),
    "tied_gpt2": lambda: transformers.GPT2Config(**_SMALL, n_embd=32, n_layer=3, n_head=4, tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2Config(**_HIDDEN, num_key_value_heads=2),
    "gemma3": lambda: transformers.Gemma3TextConfig(**_HIDDEN, num_key_value_heads=2, head_dim=8),
    "mixtral": lambda: transformers.MixtralConfig(**_HIDDEN, num_key_value_heads=2, num_local_experts=3),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **_HIDDEN, num_key_value_heads=2, num_experts=3, num_experts_per_tok=2, moe_intermediate_size=24
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **_HIDDEN, num_key_value_heads=2, head_dim=8, num_local_experts=3, num_experts_per_tok=2
    ),
    "phi3": lambda: transformers.Phi3Config(**_HIDDEN, num_key_value_heads=2),
}


@dataclass(frozen=True)
class Wrapped:
    """A module that PEFT wrapped."""

    rank: int
    scaling: float
    a: np.ndarray
    b: np.ndarray
    bias: np.ndarray | None


@dataclass(frozen=True)
class Upload:
    """The two files of an adapter, and the base model that it is for."""

    config: bytes
    tensors: bytes
    layout: BaseLayout

    @property
    def file(self) -> BytesIO:
        return BytesIO(self.tensors)

    def edited(self, **fields: object) -> "Upload":
        """Return the upload with some fields of adapter_config.json replaced."""
        return replace(self, config=json.dumps(json.loads(self.config) | fields).encode())


def layout_of(model: transformers.PreTrainedModel) -> BaseLayout:
    """Return the layout that an engine serving everything would report for the model."""
    found = targets(model)
    return BaseLayout(
        model_type=model.config.model_type,
        num_layers=model.config.num_hidden_layers,
        modules={module.name: module for module in found.modules},
        parameters={parameter.path: parameter for parameter in found.parameters},
        tied_embeddings=bool(model.config.tie_word_embeddings),
        serves=frozenset(AdapterKind),
        input_embedding=found.input_embedding,
        head=found.head,
    )


def _wrapped_modules(model: peft.PeftModel) -> Iterator[tuple[str, Wrapped]]:
    for name, layer in model.base_model.model.named_modules():
        if isinstance(layer, LoraLayer):
            bias = layer.lora_B["default"].bias
            yield (
                name,
                Wrapped(
                    rank=layer.r["default"],
                    scaling=layer.scaling["default"],
                    a=layer.lora_A["default"].weight.detach().float().numpy(),
                    b=layer.lora_B["default"].weight.detach().float().numpy(),
                    bias=None if bias is None else bias.detach().float().numpy(),
                ),
            )


@pytest.fixture(scope="session")
def base_model() -> Callable[[str], transformers.PreTrainedModel]:
    """Creates a tiny model, each time the same one; PEFT changes models in place, so none is shared."""

    def make(kind: str) -> transformers.PreTrainedModel:
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind](), experts_implementation="eager")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)  # biases are zero and norms one otherwise
        return model

    return make


@pytest.fixture
def make_adapter(base_model: Callable[[str], transformers.PreTrainedModel], tmp_path: Path) -> Callable[..., Upload]:
    """Wraps a tiny model with PEFT, randomizes the weights that training would change, and saves it."""

    def make(
        kind: str, dtype: torch.dtype = torch.float32, save_embedding_layers: str | bool = False, **fields: object
    ) -> Upload:
        base = base_model(kind)
        layout = layout_of(base)
        model = peft.get_peft_model(base, peft.LoraConfig(**{"task_type": "CAUSAL_LM", **fields}))
        torch.manual_seed(1)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_" in name or parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter), alpha=0.3)
        model.to(dtype).save_pretrained(tmp_path, save_embedding_layers=save_embedding_layers)
        return Upload(
            config=(tmp_path / "adapter_config.json").read_bytes(),
            tensors=(tmp_path / "adapter_model.safetensors").read_bytes(),
            layout=layout,
        )

    return make


@pytest.fixture
def read_by_peft(
    base_model: Callable[[str], transformers.PreTrainedModel], tmp_path: Path
) -> Callable[[str, Upload], dict[str, Wrapped]]:
    """Loads an upload with PEFT: the oracle. PEFT sorts a config's keys as it saves, so what it trained may differ."""

    def read(kind: str, upload: Upload) -> dict[str, Wrapped]:
        (tmp_path / "adapter_config.json").write_bytes(upload.config)
        (tmp_path / "adapter_model.safetensors").write_bytes(upload.tensors)
        return dict(_wrapped_modules(peft.PeftModel.from_pretrained(base_model(kind), tmp_path)))

    return read


@pytest.fixture
def layout() -> BaseLayout:
    """Two layers of two projections, an embedding and a head: small enough to plan by hand."""
    modules = [
        TargetModule("model.embed_tokens", ModuleKind.EMBEDDING, 96, 8),
        *(
            TargetModule(f"model.layers.{layer}.self_attn.{name}", ModuleKind.LINEAR, 8, 6)
            for layer in range(2)
            for name in ("q_proj", "v_proj")
        ),
        TargetModule("lm_head", ModuleKind.LINEAR, 8, 96, servable=False),
    ]
    return BaseLayout("tiny", 2, {module.name: module for module in modules}, max_rank=16)


@pytest.fixture
def upload(layout: BaseLayout) -> Upload:
    """A valid adapter of rank 4 for every q_proj of `layout`, written by safetensors."""
    prefix = "base_model.model.model.layers"
    tensors = {}
    for layer in range(2):
        tensors[f"{prefix}.{layer}.self_attn.q_proj.lora_A.weight"] = np.full((4, 8), 0.5, np.float32)
        tensors[f"{prefix}.{layer}.self_attn.q_proj.lora_B.weight"] = np.full((6, 4), 0.25, np.float16)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}
    return Upload(json.dumps(config).encode(), save(tensors), layout)
