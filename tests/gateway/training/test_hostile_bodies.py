"""Bodies of the training API that no client sends: each is rejected as a client's error, and names a field."""

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.running_gateway import Gateway

_SEED = 7
_JUNK: tuple[Any, ...] = (
    *(None, True, -1, 1 << 63, 1 << 80, 1e308, "", "x", "\0", "\ud800", "a" * 5000, "../../etc/passwd"),
    *([], [[]], [None] * 3, {}, {"a": {}}, {"": "\0"}, ["x"] * 5000),
)
_CHOSEN = 3  # of these, for each place of each body


def bodies(session: str, run: str) -> dict[str, dict[str, Any]]:
    """Return a valid body for each route, with all its fields."""
    command = {"model_id": run, "seq_id": 1}
    adam = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 1.0}
    checkpoint = {"path": "name", "ttl_seconds": 3600, "user_metadata": {"a": "b"}}
    lora = {"rank": 4, "seed": 1, "train_mlp": True, "train_attn": True, "train_unembed": True}
    created = {"session_id": session, "model_seq_id": 3, "user_metadata": {"a": 1}}
    params = {"max_tokens": 4, "seed": 1, "stop": ["x"], "temperature": 1.0, "top_k": 3, "top_p": 0.9}
    prompt = {"chunks": [{"type": "encoded_text", "tokens": [1, 2]}]}
    return {
        "client/config": {"sdk_version": "0.38.0"},
        "create_session": {"tags": ["a"], "user_metadata": {"a": 1}, "sdk_version": "0", "display_name": "n"},
        "session_heartbeat": {"session_id": session},
        "create_model": {**created, "base_model": "base", "lora_config": lora, "optimizer_config": {"type": "adamw"}},
        "load_weights": {**created, "path": "tinker://a/weights/b", "optimizer": True},
        "optim_step": {**command, "adam_params": adam},
        "save_weights": {**command, **checkpoint},
        "save_weights_for_sampler": {**command, **checkpoint, "sampling_session_seq_id": 1},
        "save_weights_external": {**command, **checkpoint},
        "get_info": {"model_id": run},
        "create_sampling_session": {"session_id": session, "sampling_session_seq_id": 1, "model_path": "tinker://a"},
        "asample": {
            "sampling_session_id": "s",
            "seq_id": 1,
            "num_samples": 2,
            "prompt": prompt,
            "sampling_params": params,
            "prompt_logprobs": True,
            "topk_prompt_logprobs": 2,
        },
        "retrieve_future": {"request_id": f"{run}:1"},
        "cancel_future": {"request_id": f"{run}:1"},
        "weights_info": {"tinker_path": "tinker://a/weights/b"},
    }


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all values in a document."""
    if path:
        yield path
    branches = dict(enumerate(document)) if isinstance(document, list) else document
    for key, value in branches.items() if isinstance(branches, dict) else ():
        yield from places(value, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return the document with another value at the path."""
    if not path:
        return value
    copied = dict(document) if isinstance(document, dict) else list(document)
    copied[path[0]] = replaced(document[path[0]], path[1:], value)
    return copied


async def test_no_body_is_a_server_error(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.gateway.routes.training.sampling._HOLD_SECONDS", 0.0)
    chosen = random.Random(_SEED)
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=30) as http:
        http.headers["x-api-key"] = f"tml-{gateway.key}"
        session = (await http.post("/api/v1/create_session", json={})).json()["session_id"]
        for route, whole in bodies(session, f"{session}:train:0").items():
            tried = [replaced(whole, path, junk) for path in places(whole) for junk in chosen.sample(_JUNK, _CHOSEN)]
            for body in [*tried, [], "x", None, {**whole, "unknown": 1}]:
                response = await http.post(f"/api/v1/{route}", content=json.dumps(body))
                assert response.status_code < 500, (route, body, response.text)
                if response.status_code >= 400:
                    assert response.json()["error"]["message"], (route, body)
