"""The base model's folder: its location, its contents besides weights, and the digest of the served model."""

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loragate.engine.config import EngineConfig, check_model_id
from loragate.engine.model.errors import ModelRejected
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
_COMMIT = re.compile("[0-9a-f]{40}")
_TOKEN_FIELDS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def locate(model: str, *, require_commit: bool = False) -> Path:
    """Return the folder of a model: a directory, or a hub id that is downloaded or taken from the local hub cache.

    `<hub id>@<revision>` names a commit, a branch or a tag; without it, the newest commit is taken. Raise ModelRejected
    if there is no such model, or with `require_commit` if a hub id does not name the commit that is found.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    check_path(model)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repository, _, revision = model.partition("@")
    if require_commit and not _COMMIT.fullmatch(revision):
        raise ModelRejected(
            f"{model} does not name a commit, which engine.require_pinned_model demands: "
            f"write {repository}@ and the 40 hexadecimal digits of the commit"
        )
    try:
        folder = Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(_WANTED)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelRejected(f"{model} is neither a local folder nor available from the hub: {error}") from error
    if revision != folder.name:  # the cache names its folders after commits
        if require_commit:  # a branch can be named like a commit
            raise ModelRejected(f"the hub returned commit {folder.name} for {model}")
        log.warning(
            "%s is at commit %s now; to serve no other, use --model %s@%s", model, folder.name, repository, folder.name
        )
    return folder


def check_path(model: str) -> None:
    """Raise ModelRejected if `model` is the path of a folder that does not exist."""
    path = Path(model).expanduser()
    if not path.is_dir() and (path.is_absolute() or model.startswith(".")):
        raise ModelRejected(f"there is no folder {model}")


def model_name(model: str) -> str:
    """Return the name by which requests know a model: a folder's own name, or a hub id without its revision."""
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else model.partition("@")[0]


def served_name(config: EngineConfig) -> str:
    """Return the configured name, or the model's own. Raise ModelRejected if that is no valid name."""
    if config.model_id:
        return config.model_id
    name = model_name(config.model)
    try:
        check_model_id(name)
    except ValueError as error:
        raise ModelRejected(f"{error}, the folder's own name: set engine.model_id") from None
    return name


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """The files that other processes need to tokenize for the model without transformers."""

    tokenizer_json: bytes = b""
    chat_template: str = ""
    special_tokens: dict[str, str] = field(default_factory=dict)
    add_bos_token: bool = False


def read_tokenizer(directory: Path) -> TokenizerFiles:
    """Return the tokenizer's own files unchanged; transformers converts only if there is no tokenizer.json."""
    config = _read_json(directory / "tokenizer_config.json")
    special = {**_read_json(directory / "special_tokens_map.json"), **config}
    names = {name: _token_text(special.get(name)) for name in _TOKEN_FIELDS}
    file = directory / "tokenizer.json"
    return TokenizerFiles(
        tokenizer_json=file.read_bytes() if file.is_file() else _convert_tokenizer(directory),
        chat_template=_chat_template(directory, config),
        special_tokens={name: text for name, text in names.items() if text},
        add_bos_token=bool(config.get("add_bos_token")),
    )


def saved_quantization(directory: Path) -> dict[str, Any] | None:
    """Return the `quantization_config` of a checkpoint, or None if its weights are not quantized."""
    config = _read_json(directory / "config.json")
    for each in (config, config.get("text_config")):
        saved = each.get("quantization_config") if isinstance(each, dict) else None
        if isinstance(saved, dict):
            return saved
    return None


def quantization_method(saved: Mapping[str, Any]) -> str:
    """Return the method that a `quantization_config` names; old ones of bitsandbytes name none."""
    return str(saved.get("quant_method", "bitsandbytes"))


def read_sampling_defaults(directory: Path) -> pb.SamplingDefaults:
    """Return the sampling defaults recommended by the model's authors. `do_sample: false`, if given, means greedy."""
    generation = _read_json(directory / "generation_config.json")
    defaults = pb.SamplingDefaults()
    if isinstance(generation.get("temperature"), int | float):
        defaults.temperature = generation["temperature"]
    if isinstance(generation.get("top_p"), int | float):
        defaults.top_p = generation["top_p"]
    if isinstance(generation.get("top_k"), int) and generation["top_k"] >= 0:
        defaults.top_k = generation["top_k"]
    if generation.get("do_sample") is False:
        defaults.temperature = 0.0
    return defaults


def base_digest(directory: Path, cache: Path) -> str:
    """Return "sha256:…" over config.json and the weights. Cached by each file's size and modification time."""
    files = [directory / "config.json", *sorted(directory.glob("*.safetensors"))]
    known = _read_json(cache)
    digests = {}
    for file in files:
        stat = file.stat()
        stamp = f"{file.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
        digests[stamp] = known.get(stamp) or _sha256(file)
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(json.dumps(digests))
    named = [f"{file.name} {digest}" for file, digest in zip(files, digests.values(), strict=True)]
    return "sha256:" + hashlib.sha256("\n".join(named).encode()).hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _token_text(token: object) -> str:
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _chat_template(directory: Path, config: dict[str, Any]) -> str:
    file = directory / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several templates, by name
        template = next((t["template"] for t in template if t.get("name") == "default"), "")
    return template if isinstance(template, str) else ""


def _convert_tokenizer(directory: Path) -> bytes:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        return str(tokenizer.backend_tokenizer.to_str()).encode()
    except (ValueError, OSError, AttributeError, KeyError):
        return b""  # prompts of token ids still work
