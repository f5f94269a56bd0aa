"""One adapter, one digest: every change of an output changes the digest, and nothing else does."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from loragate.peft_format.config.lora_config import parse_config
from loragate.peft_format.digest import adapter_digest
from loragate.peft_format.safetensors.header import read_header


def digest(upload: Any) -> str:
    header = read_header(upload.file, len(upload.tensors))
    return adapter_digest(parse_config(upload.config), header, upload.file)


@pytest.mark.parametrize(
    "fields",
    [
        {"r": 2},
        {"lora_alpha": 16},
        {"use_rslora": True},
        {"lora_bias": True},
        {"target_modules": ["v_proj"]},
        {"target_modules": "q_proj"},
        {"exclude_modules": ["v_proj"]},
        {"layers_to_transform": [0]},
        {"rank_pattern": {"q_proj": 4}},
        {"alpha_pattern": {"q_proj": 4}},
        {"alpha_pattern": {"q_proj": 4, ".*q_proj": 2}},
        {"alpha_pattern": {".*q_proj": 2, "q_proj": 4}},
        {"use_dora": True},
        {"bias": "all"},
        {"bias": "lora_only"},
        {"modules_to_save": ["norm"]},
        {"trainable_token_indices": [5, 6]},
        {"trainable_token_indices": [6, 5]},
        {"trainable_token_indices": {"lm_head": [5, 6]}},
        {"target_parameters": ["gate_up_proj"]},
        {"alora_invocation_tokens": [5, 6]},
        {"alora_invocation_tokens": [6, 5]},
        {"use_bdlora": {"target_modules_bd_a": ["q_proj"], "nblocks": 2}},
        {"use_bdlora": {"target_modules_bd_a": ["q_proj"], "nblocks": 4}},
        {"use_bdlora": {"target_modules_bd_b": ["q_proj"], "nblocks": 2}},
        {"ensure_weight_tying": True},
    ],
)
def test_what_changes_the_output_changes_the_digest(upload: Any, fields: dict[str, object]) -> None:
    assert digest(upload.edited(**fields)) != digest(upload)


def test_the_order_of_patterns_counts(upload: Any) -> None:
    first, second = ({"q_proj": 4, ".*q_proj": 2}, {".*q_proj": 2, "q_proj": 4})

    assert digest(upload.edited(alpha_pattern=first)) != digest(upload.edited(alpha_pattern=second))


@pytest.mark.parametrize(
    "fields",
    [
        {"base_model_name_or_path": "someone/else", "revision": "main"},
        {"lora_dropout": 0.5, "inference_mode": True, "peft_version": "0.9.0"},
        {"lora_alpha": 8.0},
        {"target_modules": ["q_proj", "q_proj"]},
        {"layers_to_transform": [], "exclude_modules": None, "rank_pattern": None},
        {"init_lora_weights": "gaussian"},
        {"use_dora": False, "bias": "none", "modules_to_save": [], "target_parameters": [], "use_bdlora": None},
        {"alora_invocation_tokens": [], "trainable_token_indices": None, "ensure_weight_tying": False},
        {"use_qalora": True, "velora_config": {"num_groups": 4}, "monteclora_config": {"num_samples": 8}},
    ],
)
def test_what_does_not_change_the_output_does_not_change_the_digest(upload: Any, fields: dict[str, object]) -> None:
    assert digest(upload.edited(**fields)) == digest(upload)


def test_no_two_kinds_share_a_digest(upload: Any) -> None:
    fields = [
        {"use_dora": True},
        *({"trainable_token_indices": value} for value in ([5], [6], {"lm_head": [5]}, {"embed": [5]})),
        *({"alora_invocation_tokens": value} for value in ([5], [6], [5, 6])),
        *({"modules_to_save": value} for value in (["norm"], ["head"], ["head", "norm"])),
        *({"target_parameters": value} for value in (["norm"], ["head"])),
        *({"bias": value} for value in ("all", "lora_only")),
    ]

    assert len({digest(upload.edited(**each)) for each in fields}) == len(fields)


def test_order_of_names_does_not_count(upload: Any) -> None:
    for field in ("modules_to_save", "target_parameters"):
        assert digest(upload.edited(**{field: ["a", "b"]})) == digest(upload.edited(**{field: ["b", "a", "a"]}))
    pairs = [{"a": [1], "b": [2]}, {"b": [2], "a": [1]}]
    assert len({digest(upload.edited(trainable_token_indices=each)) for each in pairs}) == 1
    assert digest(upload.edited(target_modules=["a", "b"])) == digest(upload.edited(target_modules=["b", "a"]))


def _flip_one_bit(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    name = min(tensors)
    raw = bytearray(tensors[name].tobytes())
    raw[-1] ^= 1
    return tensors | {name: np.frombuffer(bytes(raw), tensors[name].dtype).reshape(tensors[name].shape)}


def _swap_two_tensors(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    first, second, *_ = sorted(tensors)
    return tensors | {first: tensors[second], second: tensors[first]}


def _reshape(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.reshape(-1) for name, array in tensors.items()}


def _rename(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name + "x": array for name, array in tensors.items()}


@pytest.mark.parametrize("change", [_flip_one_bit, _swap_two_tensors, _reshape, _rename])
def test_any_change_of_the_tensors_changes_the_digest(
    upload: Any, change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
) -> None:
    other = type(upload)(upload.config, save(change(load(upload.tensors))), upload.layout)

    assert digest(other) != digest(upload)


def test_order_and_metadata_of_the_file_do_not_count(upload: Any) -> None:
    """The file has the same tensors in reverse order, written by hand."""
    tensors = load(upload.tensors)
    entries: dict[str, object] = {"__metadata__": {"note": "mine"}}
    data = b""
    for name, array in reversed(tensors.items()):
        dtype = {"float32": "F32", "float16": "F16"}[str(array.dtype)]
        end = len(data) + array.nbytes
        entries[name] = {"shape": list(array.shape), "dtype": dtype, "data_offsets": [len(data), end]}
        data += array.tobytes()
    raw = json.dumps(entries).encode()
    other = type(upload)(upload.config, len(raw).to_bytes(8, "little") + raw + data, upload.layout)

    assert other.tensors != upload.tensors
    assert digest(other) == digest(upload)


def test_the_digest_is_the_same_in_another_process(upload: Any, tmp_path: Any) -> None:
    (tmp_path / "config").write_bytes(upload.config)
    (tmp_path / "tensors").write_bytes(upload.tensors)
    script = (
        "import sys, pathlib\n"
        "from loragate.peft_format import digest\n"
        "from loragate.peft_format.config import lora_config\n"
        "from loragate.peft_format.safetensors import header\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "path = folder / 'tensors'\n"
        "with path.open('rb') as file:\n"
        "    tensors = header.read_header(file, path.stat().st_size)\n"
        "    print(digest.adapter_digest(lora_config.parse_config((folder / 'config').read_bytes()), tensors, file))\n"
    )
    seen = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env={"PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert seen.stdout.strip() == digest(upload)


def test_the_digest_never_changes(upload: Any) -> None:
    """Digests name blobs and cached adapters: a change of the canonical form must be deliberate."""
    assert digest(upload) == "sha256:52abf4e41acdb60cb082ce8e38f5b90eaa8e9d5a346890470df034e109780c31"
