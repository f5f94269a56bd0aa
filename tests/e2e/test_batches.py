"""A batch on a real server whose gateway and engine are killed: each line has one result and one row of usage."""

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import RunningServer, client, ok, until, upload

from .conftest import Tiny

LINES, TOKENS = 1500, 16
URL = "/v1/completions"


def _body(model: str) -> dict[str, Any]:
    return {"model": model, "prompt": "what is", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}


def _lines() -> bytes:
    lines = ({"custom_id": f"line-{n}", "method": "POST", "url": URL, "body": _body("ab"[n % 2])} for n in range(LINES))
    return "\n".join(map(json.dumps, lines)).encode()


def _batch(http: httpx.Client, batch_id: str) -> dict[str, Any]:
    """Return the batch; one without results while the gateway is away."""
    nothing: dict[str, Any] = {"status": "unknown", "request_counts": {"completed": 0}}
    try:
        answer = http.get(f"/v1/batches/{batch_id}")
    except httpx.TransportError:
        return nothing
    return answer.json() if answer.is_success else nothing


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_line_has_one_result_when_gateway_and_engine_are_killed(tiny: Tiny, tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data", "--model", str(tiny.base))
    try:
        with client(server.base_url, server.add_tenant("acme")) as http:
            for name in "ab":
                ok(upload(http, name, tiny.adapters[name]))
            alone = [ok(http.post(URL, json=_body(name)))["choices"][0]["text"] for name in "ab"]
            file = ok(http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", _lines())}))
            asked = {"input_file_id": file["id"], "endpoint": URL, "completion_window": "24h"}
            batch_id = ok(http.post("/v1/batches", json=asked))["id"]
            for part, seen in (("gateway", LINES // 8), ("engine", LINES // 2)):
                until(lambda seen=seen: _batch(http, batch_id)["request_counts"]["completed"] >= seen, 240)
                assert _batch(http, batch_id)["status"] == "in_progress"
                pids = server.runtime["pids"][part]
                os.kill(pids[0] if isinstance(pids, list) else pids, signal.SIGKILL)
            until(lambda: _batch(http, batch_id)["status"] == "completed", 400)
            batch = _batch(http, batch_id)
            content = http.get(f"/v1/files/{batch['output_file_id']}/content").text
            results = [json.loads(line) for line in content.splitlines()]
            assert batch["request_counts"] == {"total": LINES, "completed": LINES, "failed": 0}
            assert Counter(each["custom_id"] for each in results) == Counter(f"line-{n}" for n in range(LINES))
            for each in results:
                number = int(each["custom_id"].removeprefix("line-"))
                [choice] = each["response"]["body"]["choices"]
                assert choice["text"] == alone[number % 2]
            until(lambda: ok(http.get("/v1/usage"))["totals"]["requests"] == LINES + 2)
            assert ok(http.get("/v1/usage"))["totals"]["completion_tokens"] == (LINES + 2) * TOKENS
    finally:
        server.stop()
