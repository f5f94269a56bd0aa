"""Uploads end with a probe in the engine, over the real connection."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loragate.v1 import engine_pb2 as pb
from tests.gateway import tiny_model
from tests.gateway.running_gateway import Gateway


async def _send(gateway: Gateway, folder: Path, name: str = "poet", **data: str) -> Any:
    files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(folder).iterdir()}
    async with gateway.http() as http:
        return await http.post("/v1/adapters", data={"name": name, **data}, files=files)


async def _names(gateway: Gateway) -> list[str]:
    async with gateway.http() as http:
        return [adapter["name"] for adapter in (await http.get("/v1/adapters")).json()["data"]]


async def test_the_engine_computes_with_an_upload_before_any_request(gateway: Gateway, tmp_path: Path) -> None:
    made = await _send(gateway, tmp_path / "a")
    assert (made.status_code, made.json()["status"]) == (201, "ready"), made.text
    (probe,) = gateway.engine.submits
    assert probe.adapter.digest == made.json()["digest"]
    assert probe.share.tenant_id == gateway.tenant_id
    assert probe.cache_salt == b""  # no tenant's cache
    assert bytes(gateway.engine.adapters[probe.adapter.digest].tensors)


async def test_a_version_is_invisible_until_the_engine_has_responded(gateway: Gateway, tmp_path: Path) -> None:
    gateway.engine.pause_after = 1  # between the prefill and the decode step
    sending = asyncio.create_task(_send(gateway, tmp_path / "a"))
    await gateway.engine.paused.wait()
    assert await _names(gateway) == []
    gateway.engine.resume.set()
    assert (await sending).status_code == 201
    assert await _names(gateway) == ["poet"]


async def test_an_adapter_that_overflows_is_rejected_with_the_reason(gateway: Gateway, tmp_path: Path) -> None:
    gateway.engine.fails = lambda submit: True
    gateway.engine.failure = pb.EngineError(code=pb.ERROR_CODE_NON_FINITE, message="NaN")
    rejected = await _send(gateway, tmp_path / "a")
    assert rejected.status_code == 400, rejected.text
    error = rejected.json()["error"]
    assert (error["code"], error["param"]) == ("non_finite_output", "adapter_model.safetensors")
    assert "NaN" in error["message"]
    assert await _names(gateway) == []


@pytest.mark.parametrize(
    "failure",
    [
        pb.EngineError(code=pb.ERROR_CODE_ADAPTER_UNAVAILABLE, message="its files cannot be kept"),
        pb.EngineError(code=pb.ERROR_CODE_INTERNAL, message="a step failed"),
    ],
)
async def test_a_failing_engine_makes_the_upload_retryable(
    gateway: Gateway, tmp_path: Path, failure: pb.EngineError
) -> None:
    gateway.engine.fails = lambda submit: True
    gateway.engine.failure = failure
    rejected = await _send(gateway, tmp_path / "a")
    assert (rejected.status_code, rejected.json()["error"]["code"]) == (503, "engine_unavailable"), rejected.text
    assert "retry-after" in rejected.headers
    assert await _names(gateway) == []
    gateway.engine.fails = lambda submit: False
    assert (await _send(gateway, tmp_path / "b")).status_code == 201


async def test_an_idempotency_key_is_free_again_after_a_failed_probe(gateway: Gateway, tmp_path: Path) -> None:
    files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(tmp_path / "a").iterdir()}
    headers = {"idempotency-key": "once"}
    gateway.engine.fails = lambda submit: True
    async with gateway.http() as http:
        first = await http.post("/v1/adapters", data={"name": "poet"}, files=files, headers=headers)
        gateway.engine.fails = lambda submit: False
        second = await http.post("/v1/adapters", data={"name": "poet"}, files=files, headers=headers)
        third = await http.post("/v1/adapters", data={"name": "poet"}, files=files, headers=headers)
    assert [answer.status_code for answer in (first, second, third)] == [503, 201, 201]
    assert second.content == third.content


async def test_lineage_is_stored_at_upload_and_returned(gateway: Gateway, tmp_path: Path) -> None:
    await _send(gateway, tmp_path / "a")
    digest = "sha256:" + "d" * 64
    made = await _send(
        gateway,
        tmp_path / "b",
        notes="on March's haiku",
        dataset_digest=digest,
        parent_version="1",
        evaluation='{"accuracy": 0.93, "loss": 1}',
    )
    assert made.status_code == 201, made.text
    lineage = {
        "source": "upload",
        "dataset_digest": digest,
        "parent_version": 1,
        "evaluation": {"accuracy": 0.93, "loss": 1},
        "notes": "on March's haiku",
    }
    async with gateway.http() as http:
        found = (await http.get("/v1/adapters/poet/versions/2")).json()
    assert found["lineage"] == made.json()["lineage"] == lineage


@pytest.mark.parametrize(
    ("data", "param"),
    [
        ({"parent_version": "7"}, "parent_version"),
        ({"parent_version": "x"}, "parent_version"),
        ({"parent_version": "-1"}, "parent_version"),
        ({"dataset_digest": "sha256:xyz"}, "dataset_digest"),
        ({"evaluation": "[1]"}, "evaluation"),
        ({"evaluation": '{"a": "b"}'}, "evaluation.a"),
        ({"evaluation": '{"a": NaN}'}, "evaluation"),
        ({"evaluation": '{"a\\u0000": 1}'}, "evaluation"),
        ({"evaluation": '{"a": 1e999}'}, "evaluation.a"),
        ({"notes": "x" * 2001}, "notes"),
        ({"notes": "x" * 20000}, "notes"),
        ({"notes": "\0"}, "notes"),
    ],
)
async def test_invalid_lineage_is_rejected_by_name(
    gateway: Gateway, tmp_path: Path, data: dict[str, str], param: str
) -> None:
    rejected = await _send(gateway, tmp_path / "a", **data)
    assert (rejected.status_code, rejected.json()["error"]["param"]) == (400, param), rejected.text
    assert await _names(gateway) == []
