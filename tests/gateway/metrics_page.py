"""The metrics of a gateway after one event of every kind."""

import asyncio
import tempfile
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from loragate.v1 import engine_pb2 as pb
from loragate.v1.adapters_pb2 import ListAdaptersRequest
from tests.gateway import tiny_model
from tests.gateway.engine_stats import full_stats
from tests.gateway.grpc_client import Client
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

ONLY_ENGINE = "engine-0"
_TEXT = {"model": MODEL_ID, "prompt": "one two three", "max_tokens": 2}


async def scrape_as_operator(gateway: Gateway) -> str:
    """Return the metrics for the admin key, which shows all of them."""
    async with gateway.admin() as admin:
        response = await admin.get("/metrics")
    assert response.status_code == 200, response.text
    return response.text


async def page_after_traffic(gateway: Gateway, client: Client) -> str:
    """Return the metrics after two completions and one that fails, one shed request, a rate-limited one of the other
    tenant, and a gRPC call.
    """
    gateway.engine.stats = full_stats(pb.AdapterRef(tenant_id="tn_x", digest="sha256:1"))
    await client.adapters.List(ListAdaptersRequest(), metadata=client.metadata)
    async with gateway.http() as http, gateway.http(gateway.other_key) as other:
        await http.get("/v1/models")
        await _ask_an_adapter(other)
        for _ in range(2):
            await http.post("/v1/completions", json=_TEXT)
        gateway.engine.fails = lambda submit: True
        await http.post("/v1/completions", json=_TEXT)
        gateway.engine.fails = lambda submit: False
        queue = pb.TenantQueue(tenant_id=gateway.tenant_id, weight=1, seconds=1000)
        gateway.engine.report_load(pb.Load(request_seconds=1, active_weight=1, tenants=[queue]))
        assert (await other.post("/v1/completions", json=_TEXT)).status_code == 200  # reported after the response
        assert (await http.post("/v1/completions", json=_TEXT)).status_code == 503
        await _limit_the_other(gateway)
        while (await other.post("/v1/completions", json=_TEXT)).status_code != 429:
            await asyncio.sleep(0.05)
    return await scrape_as_operator(gateway)


async def _ask_an_adapter(http: httpx.AsyncClient) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = {file.name: file.read_bytes() for file in tiny_model.write_adapter(Path(folder) / "a").iterdir()}
    assert (await http.post("/v1/adapters", data={"name": "poet"}, files=files)).status_code == 201
    assert (await http.post("/v1/completions", json={**_TEXT, "model": "poet"})).status_code == 200


async def _limit_the_other(gateway: Gateway) -> None:
    async with gateway.admin() as admin:
        for tenant in (await admin.get("/admin/v1/tenants")).json()["data"]:
            if tenant["id"] != gateway.tenant_id:
                limits = {"limits": {"tokens_per_minute": 1}}
                (await admin.patch(f"/admin/v1/tenants/{tenant['id']}", json=limits)).raise_for_status()


def samples_of(text: str) -> Samples:
    """Return the samples by name and labels."""
    families = list(text_string_to_metric_families(text))
    found = [sample for family in families for sample in family.samples]
    samples = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}
    assert len(samples) == len(found), "a series appears twice"
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    """Return the value of the sample with exactly these labels, or with them and the label of the only engine."""
    wanted = frozenset(labels.items())
    of_engine = wanted | {("engine", ONLY_ENGINE)}
    return samples[name, of_engine if (name, of_engine) in samples else wanted]
