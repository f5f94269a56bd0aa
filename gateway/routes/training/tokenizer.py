"""The base model's tokenizer in the form of Hugging Face's hub, under the model's name, for clients whose `HF_ENDPOINT`
is `/hf`. Nothing else is served, and no key is needed: libraries send none."""

import hashlib
from typing import Any

import orjson
from fastapi import APIRouter, Response

from loragate.gateway.dependencies.requirements import public
from loragate.gateway.dependencies.services import Use
from loragate.gateway.http.envelope import json_response
from loragate.gateway.text.base_model import BaseModel

router = APIRouter(prefix="/hf", tags=["training"], include_in_schema=False, dependencies=[public])

_TOKENIZER = "tokenizer.json"
_CONFIG = "tokenizer_config.json"


@router.api_route("/{name:path}/resolve/{revision}/{file:path}", methods=["GET", "HEAD"])
async def resolve(name: str, revision: str, file: str, use: Use) -> Response:
    """Return a file of the tokenizer."""
    base = use.link.base
    if name != base.id:
        return _not_found("RepoNotFound")
    content = _content(base, file)
    if content is None:
        return _not_found("EntryNotFound")
    headers = {"x-repo-commit": _commit(base), "etag": f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"'}
    return Response(content, media_type="application/json", headers=headers)


@router.get("/api/models/{name:path}")
async def describe(name: str, use: Use) -> Response:
    """Describe the model as the hub does, as far as its tokenizer goes."""
    base = use.link.base
    if name.startswith(f"{base.id}/tree/"):  # it has no folders
        return _not_found("EntryNotFound")
    if name.partition("/revision/")[0] != base.id:
        return _not_found("RepoNotFound")
    files = [{"rfilename": each} for each in (_TOKENIZER, _CONFIG)]
    return json_response({"id": base.id, "modelId": base.id, "sha": _commit(base), "private": False, "siblings": files})


def _content(base: BaseModel, file: str) -> bytes | None:
    if file == _TOKENIZER:
        return base.manifest.tokenizer_json
    return orjson.dumps(_config(base)) if file == _CONFIG else None


def _config(base: BaseModel) -> dict[str, Any]:
    manifest = base.manifest
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": manifest.max_model_len,
        "clean_up_tokenization_spaces": False,
        **manifest.special_tokens,
    }
    return config | ({"chat_template": manifest.chat_template} if manifest.chat_template else {})


def _commit(base: BaseModel) -> str:
    return base.manifest.base_digest.removeprefix("sha256:")[:40]


def _not_found(code: str) -> Response:
    return json_response({"error": "Not found"}, 404, {"x-error-code": code})
