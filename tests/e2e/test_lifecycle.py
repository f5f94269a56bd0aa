"""Adapters come and go on a real engine: broken ones never become ready, and those in use finish."""

import json
from pathlib import Path
from typing import Any

from running_server import ok, until, upload
from tiny_models import add_adapter

TEXT = {"prompt": [5, 9, 13, 21], "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def test_an_adapter_whose_logits_overflow_is_rejected_and_others_are_not(  # type: ignore[no-untyped-def]
    tenants, tiny, tmp_path: Path
) -> None:
    """Its weights, and every entry of B·A, are finite, but the result of a forward pass is not."""
    folder = add_adapter(tiny.model, tmp_path / "wild", seed=7, std=1e15, r=4)
    before = ok(tenants.acme.post("/v1/completions", json={"model": "a", **TEXT}))["choices"][0]["text"]
    rejected = upload(tenants.acme, "wild", folder)
    assert rejected.status_code == 400, rejected.text
    assert rejected.json()["error"]["code"] == "non_finite_output"
    assert tenants.acme.get("/v1/adapters/wild").status_code == 404
    assert tenants.acme.post("/v1/completions", json={"model": "wild", **TEXT}).status_code == 404
    assert ok(tenants.acme.post("/v1/completions", json={"model": "a", **TEXT}))["choices"][0]["text"] == before


def test_a_stream_finishes_on_a_version_that_is_deleted_meanwhile(  # type: ignore[no-untyped-def]
    server, tenants, tiny
) -> None:
    digest = ok(upload(tenants.acme, "brief", tiny.adapters["c"]))["digest"]
    asked = {"model": "brief", **TEXT, "max_tokens": 450, "stream": True, "stream_options": {"include_usage": True}}
    with tenants.acme.stream("POST", "/v1/completions", json=asked) as stream:
        lines = (line for line in stream.iter_lines() if line)
        next(lines)
        with server.admin() as admin:
            assert _running(admin, digest) == 1
        assert tenants.acme.delete("/v1/adapters/brief").status_code == 200
        assert tenants.acme.post("/v1/completions", json={"model": "brief", **TEXT}).status_code == 404
        events = [line.removeprefix("data: ") for line in lines]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 450
    with server.admin() as admin:
        until(lambda: _running(admin, digest) == 0)
    assert ok(tenants.acme.post("/v1/adapters/brief/restore"))["status"] == "ready"
    assert ok(tenants.acme.post("/v1/completions", json={"model": "brief", **TEXT}))["choices"]


def _running(admin: Any, digest: str) -> int:
    """Return the requests in flight on the adapter, if the engine still has it on its device."""
    residents = ok(admin.get("/admin/v1/engines/engine-0"))["residents"]
    return sum(resident["running"] for resident in residents if resident["digest"] == digest)
