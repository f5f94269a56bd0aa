"""An adapter's identity as one hash: two uploads have the same digest exactly if they compute the same.

The digest is SHA-256 over this JSON document, in UTF-8, with sorted keys and without spaces:

    {"format": "loragate-adapter-1", "config": {…}, "tensors": [[name, dtype, [dims…], hex SHA-256], …]}

with the tensors by name, and in "config" the fields of `LoraConfig` in one spelling each: names as a sorted
list without repeats, a regular expression as a string, "all-linear" in lower case, layer numbers as a sorted
list, alphas as floating point, rank_pattern and alpha_pattern as lists of pairs, since the first match wins.
Fields beyond plain LoRA (`use_dora` and all after it) are included only where they are not neutral. Fields that do
not change the computation, such as the base model's name or the dropout, are left out.
"""

import hashlib
import json
from collections.abc import Mapping
from io import BytesIO
from typing import BinaryIO

from loragate.peft_format.config.lora_config import LoraConfig, parse_config
from loragate.peft_format.errors import TENSOR_FILE, AdapterRejected
from loragate.peft_format.plan.targets import is_all_linear
from loragate.peft_format.safetensors.header import Header, TensorSpec, header_bytes, read_header
from loragate.peft_format.safetensors.streaming import chunks

_FORMAT = "loragate-adapter-1"


def adapter_digest(config: LoraConfig, header: Header, file: BinaryIO) -> str:
    """Return "sha256:<64 hex digits>"; reads the tensors a megabyte at a time."""
    # Hashed in the order of their bytes, listed by name.
    return digest_of_hashes(config, header, {spec.name: _hash(file, spec) for spec in header.tensors.values()})


def digest_of_hashes(config: LoraConfig, header: Header, hashes: Mapping[str, str]) -> str:
    """Return the adapter's digest, given the SHA-256 of each tensor's bytes."""
    document = {
        "format": _FORMAT,
        "config": _canonical(config),
        "tensors": [[name, spec.dtype, spec.shape, hashes[name]] for name, spec in sorted(header.tensors.items())],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def _hash(file: BinaryIO, spec: TensorSpec) -> str:
    digest = hashlib.sha256()
    for chunk in chunks(file, spec):
        digest.update(chunk)
    return digest.hexdigest()


def _canonical(config: LoraConfig) -> dict[str, object]:
    plain = {
        "r": config.r,
        "lora_alpha": config.lora_alpha,
        "use_rslora": config.use_rslora,
        "rank_pattern": config.rank_pattern,
        "alpha_pattern": config.alpha_pattern,
        "target_modules": _names(config.target_modules),
        "exclude_modules": _names(config.exclude_modules),
        "layers_to_transform": config.layers_to_transform,
        "layers_pattern": config.layers_pattern,
        "lora_bias": config.lora_bias,
    }
    blocks = config.use_bdlora
    beyond = {
        "use_dora": config.use_dora,
        "bias": config.bias if config.bias != "none" else None,
        "target_parameters": config.target_parameters,
        "modules_to_save": config.modules_to_save,
        "trainable_token_indices": sorted(config.trainable_token_indices),
        "ensure_weight_tying": config.ensure_weight_tying,
        "alora_invocation_tokens": config.alora_invocation_tokens,
        "task_type": config.task_type,
        "id2label": config.id2label,
        "problem_type": config.problem_type,
        "use_bdlora": blocks and [blocks.of_a, blocks.of_b, blocks.blocks],
    }
    return plain | {name: value for name, value in beyond.items() if value}


def _names(value: str | tuple[str, ...]) -> str | list[str]:
    if isinstance(value, str):
        return value.lower() if is_all_linear(value) else value
    return sorted(set(value))


class StreamDigest:
    """Computes `adapter_digest` of a tensor file that arrives in pieces.

    All methods raise AdapterRejected for bytes that are no adapter, or no adapter of the announced size.
    """

    def __init__(self, config_json: bytes, size: int) -> None:
        self._config = parse_config(config_json)
        self._size = size
        self._head = bytearray()
        self._header: Header | None = None
        self._left: list[TensorSpec] = []  # still to come, the next one last
        self._at = 0
        self._hash = hashlib.sha256()
        self._hashes: dict[str, str] = {}

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes of the file."""
        if self._header is not None:
            self._take(memoryview(chunk))
            return
        self._head += chunk
        length = header_bytes(self._head, self._size)
        if length is not None and len(self._head) >= length:
            self._header = read_header(BytesIO(self._head), self._size)
            self._left = list(self._header.tensors.values())[::-1]
            self._at = length
            rest, self._head = bytes(self._head[length:]), bytearray()
            self._take(memoryview(rest))

    def value(self) -> str:
        """Return the digest, once the whole file has been fed."""
        self._end_tensors()
        if self._header is None or self._left or self._at != self._size:
            raise AdapterRejected(f"{TENSOR_FILE} is truncated.", TENSOR_FILE)
        return digest_of_hashes(self._config, self._header, self._hashes)

    def _take(self, data: memoryview) -> None:
        while data:
            self._end_tensors()
            if not self._left:
                raise AdapterRejected(f"{TENSOR_FILE} continues after its last tensor.", TENSOR_FILE)
            part = data[: self._left[-1].end - self._at]
            self._hash.update(part)
            self._at += len(part)
            data = data[len(part) :]

    def _end_tensors(self) -> None:
        """Record the hashes of the tensors that are complete, including empty ones."""
        while self._left and self._at == self._left[-1].end:
            self._hashes[self._left.pop().name] = self._hash.hexdigest()
            self._hash = hashlib.sha256()
