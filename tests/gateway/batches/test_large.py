"""As many lines as a batch may have, in bounded memory."""

import asyncio
import json

import pytest

from loragate.adapter_store.batches.batch import MAX_BATCH_LINES
from loragate.gateway.config.gateway import GatewayConfig
from tests.gateway.batches.batch_files import CHAT, chat_line, jsonl
from tests.gateway.gateway_process import gateway_in_a_process
from tests.gateway.gateway_setup import new_tenants
from tests.gateway.stub_engine import StubEngine

_MIB = 1 << 20
_SECONDS = 1200
_MAX_GROWTH = 100 * _MIB  # the input has 20 MiB, the results 40


@pytest.mark.long
@pytest.mark.timeout(_SECONDS + 60)
async def test_fifty_thousand_lines(config: GatewayConfig, engine: StubEngine) -> None:
    engine.respond_with("Yes.")
    tenants = await new_tenants(config)
    content = jsonl(chat_line(f"line-{n}", metadata={"text": "x" * 250}) for n in range(MAX_BATCH_LINES))
    async with gateway_in_a_process(config, engine, tenants) as process, process.gateway.http() as http:
        answer = await http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("a.jsonl", content)})
        process.reset_peak()
        before = process.peak_bytes()
        wanted = {"input_file_id": answer.json()["id"], "endpoint": CHAT, "completion_window": "24h"}
        batch = (await http.post("/v1/batches", json=wanted)).raise_for_status().json()
        async with asyncio.timeout(_SECONDS):
            while batch["status"] not in ("completed", "failed"):
                await asyncio.sleep(0.5)
                batch = (await http.get(f"/v1/batches/{batch['id']}")).raise_for_status().json()
                engine.submits.clear()
        assert batch["request_counts"] == {"total": MAX_BATCH_LINES, "completed": MAX_BATCH_LINES, "failed": 0}
        grown = process.peak_bytes() - before
        output = await http.get(f"/v1/files/{batch['output_file_id']}/content")
    ids = {json.loads(line)["custom_id"] for line in output.text.splitlines()}
    assert len(ids) == MAX_BATCH_LINES
    print(f"grew by {grown / _MIB:.0f} MiB")
    assert grown < _MAX_GROWTH, f"grew by {grown / _MIB:.0f} MiB"
