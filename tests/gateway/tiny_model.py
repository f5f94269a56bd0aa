"""A base model without weights: a manifest with a small trained tokenizer and four linear modules."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from loragate.v1 import engine_pb2 as pb

MODEL_ID = "tiny/base-model"
HIDDEN = 16
LAYERS = 2
SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")

CORPUS = (
    "The quick brown fox jumps over the lazy dog.",
    "A question about stars, and an answer about the sun.",
    "STOP here. Ünïcödé, naïve café; 日本語のテキスト 🙂🙃",
    "user assistant system 0123456789",
)

CHAT_TEMPLATE = """{%- for message in messages %}
{%- if message['role'] == 'system' and not loop.first %}
{{- raise_exception('the system message must come first') }}
{%- endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

TOOLS_TEMPLATE = "{% if tools %}tools: {{ tools | tojson }}\n{% endif %}" + CHAT_TEMPLATE


def byte_level_tokenizer(*more_special: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[*SPECIAL, *more_special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def manifest(
    tokenizer: Tokenizer, *, max_model_len: int = 256, chat_template: str = CHAT_TEMPLATE, **more: Any
) -> pb.Manifest:
    modules = [
        pb.TargetModule(
            name=f"model.layers.{layer}.self_attn.{name}",
            kind=pb.MODULE_KIND_LINEAR,
            in_features=HIDDEN,
            out_features=HIDDEN,
            servable=True,
        )
        for layer in range(LAYERS)
        for name in ("q_proj", "v_proj")
    ]
    return pb.Manifest(
        model_id=MODEL_ID,
        base_digest="sha256:" + "ab" * 32,
        architecture="LlamaForCausalLM",
        model_type="llama",
        num_layers=LAYERS,
        vocab_size=tokenizer.get_vocab_size() + 8,
        max_model_len=max_model_len,
        modules=modules,
        tokenizer_json=tokenizer.to_str().encode(),
        chat_template=chat_template,
        special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
        eos_token_ids=[tokenizer.token_to_id("</s>")],
        max_lora_rank=64,
        adapter_slots=4,
        **more,
    )


HEADS: dict[str, Any] = {
    "adapter_kinds": ["classifier", "modules_to_save"],
    "classifier_heads": [
        pb.ClassifierHead(task="SEQ_CLS", name="score", in_features=HIDDEN),
        pb.ClassifierHead(task="TOKEN_CLS", name="score", in_features=HIDDEN, bias=True),
    ],
}
"""What the manifest of an engine that serves heads for labels has, too."""


def write_adapter(
    folder: Path, *, seed: int = 0, rank: int = 4, poison: str | None = None, labels: int = 0, **config_fields: Any
) -> Path:
    """Write PEFT's two files for the modules above; `poison` names a tensor that gets a NaN.

    With `labels` it has a head; `config_fields` are further ones of its config.
    """
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(LAYERS):
        for name in ("q_proj", "v_proj"):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            for half, shape in (("A", (rank, HIDDEN)), ("B", (HIDDEN, rank))):
                tensors[f"{stem}.lora_{half}.weight"] = random.normal(size=shape).astype(np.float32)
    if labels:
        tensors["base_model.model.score.weight"] = random.normal(size=(labels, HIDDEN)).astype(np.float32)
    if labels and config_fields.get("task_type") == "TOKEN_CLS":
        tensors["base_model.model.score.bias"] = random.normal(size=labels).astype(np.float32)
    if poison is not None:
        tensors[poison][0, 0] = np.nan
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": MODEL_ID,
        "r": rank,
        "lora_alpha": 2 * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "target_modules": ["q_proj", "v_proj"],
        **({"task_type": "SEQ_CLS", "modules_to_save": ["classifier", "score"]} if labels else {}),
        **config_fields,
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (folder / "adapter_model.safetensors").write_bytes(_safetensors(tensors))
    return folder


def _safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    header, body = {}, b""
    for name, array in sorted(tensors.items()):
        data = array.tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body
