"""/v1/usage and /admin/v1/usage: shapes, filters, pages, CSV, errors and cost."""

import csv
import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, event

from loragate.adapter_store.store import Store
from loragate.adapter_store.timestamps import utc_now
from loragate.adapter_store.usage.record import UsageRecord
from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.config.prices import Price
from loragate.gateway.objects.usage import csv_lines
from tests.gateway.running_gateway import Gateway, serving
from tests.gateway.stub_engine import StubEngine
from tests.gateway.usage_records import NOON, opened

IN_MARCH = {"start": "2026-03-01", "end": "2026-04-01"}
DELIVERED = (
    *("requests", "prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"),
    *("training_tokens", "training_seconds", "amount", "currency"),
)
SUMS = (*DELIVERED, "computed_prompt_tokens", "generated_tokens")


@pytest.fixture
async def store(gateway: Gateway) -> AsyncIterator[Store]:
    """A second connection to the gateway's database."""
    config = gateway.config
    opened_store = await Store.open(config.database_url, config.blob_url, config.secret_key)
    yield opened_store
    await opened_store.close()


async def settle(store: Store, *records: UsageRecord) -> None:
    async with store.admin(write=True) as admin:
        await admin.settlement.settle(records)


@pytest.fixture
async def records(gateway: Gateway, store: Store) -> list[UsageRecord]:
    """Usage of two tenants over three days."""
    mine = {"tenant_id": gateway.tenant_id, "prompt_tokens": 10, "cached_tokens": 4, "completion_tokens": 5}
    mine |= {"computed_prompt_tokens": 6, "generated_tokens": 7}
    made = [
        opened(**mine, started_at=NOON),
        opened(**mine, started_at=NOON, adapter_version=4, key_id="key2"),
        opened(**mine, started_at=NOON - timedelta(days=1), adapter=None, adapter_version=None, adapter_digest=None),
        opened(**mine, started_at=NOON - timedelta(hours=30), endpoint="embeddings"),
        opened(tenant_id="tn_other", prompt_tokens=1000, started_at=NOON),
    ]
    await settle(store, *made)
    return made


async def get(gateway: Gateway, path: str = "/v1/usage", *, status: int = 200, **params: Any) -> Any:
    async with gateway.admin() if path.startswith("/admin") else gateway.http() as http:
        response = await http.get(path, params=IN_MARCH | params)
    assert response.status_code == status, response.text
    return response.json()


def sums(requests: int) -> dict[str, Any]:
    return {
        "requests": requests,
        "prompt_tokens": 10 * requests,
        "completion_tokens": 5 * requests,
        "total_tokens": 15 * requests,
        "cached_tokens": 4 * requests,
        "training_tokens": 0,
        "training_seconds": 0,
        "amount": None,
        "currency": None,
        "computed_prompt_tokens": 6 * requests,
        "generated_tokens": 7 * requests,
    }


async def test_a_tenants_days(gateway: Gateway, records: list[UsageRecord]) -> None:
    answer = await get(gateway)
    days = [(row["start"], row["requests"]) for row in answer["data"]]
    assert days == [("2026-03-14T00:00:00.000Z", 2), ("2026-03-13T00:00:00.000Z", 2)]
    first = answer["data"][0]
    assert first == {
        "object": "usage",
        "id": answer["first_id"],
        "start": "2026-03-14T00:00:00.000Z",
        "end": "2026-03-15T00:00:00.000Z",
        **sums(2),
    }
    assert answer["object"] == "list"
    assert answer["has_more"] is False
    assert answer["totals"] == sums(4)
    assert (answer["start"], answer["end"]) == ("2026-03-01T00:00:00.000Z", "2026-04-01T00:00:00.000Z")


async def test_grouping(gateway: Gateway, records: list[UsageRecord]) -> None:
    def grouped(answer: Any, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in (*names, "requests")) for row in answer["data"]]

    assert grouped(await get(gateway, group_by="adapter"), "adapter") == [(None, 1), ("support", 3)]
    by_model = await get(gateway, group_by="model")
    assert sorted(grouped(by_model, "model")) == [("support:3", 2), ("support:4", 1), ("tiny/base", 1)]
    assert grouped(await get(gateway, group_by="key"), "key_id") == [("key1", 3), ("key2", 1)]
    assert grouped(await get(gateway, group_by="endpoint"), "endpoint") == [("chat", 3), ("embeddings", 1)]
    by_hour = await get(gateway, group_by="hour,key", end="2026-03-14T12:30:00Z", start="2026-03-14T00:00:00Z")
    assert grouped(by_hour, "start", "end", "key_id") == [
        ("2026-03-14T12:00:00.000Z", "2026-03-14T13:00:00.000Z", "key1", 1),
        ("2026-03-14T12:00:00.000Z", "2026-03-14T13:00:00.000Z", "key2", 1),
    ]
    both = await get(gateway, group_by=["adapter", "key"])
    assert grouped(both, "adapter", "key_id") == [(None, "key1", 1), ("support", "key1", 2), ("support", "key2", 1)]


async def test_filters(gateway: Gateway, records: list[UsageRecord]) -> None:
    assert (await get(gateway, adapter="support"))["totals"] == sums(3)
    assert (await get(gateway, adapter=""))["totals"] == sums(1)
    assert (await get(gateway, key_id="key2"))["totals"] == sums(1)
    assert (await get(gateway, adapter="nobodys"))["totals"] == sums(0)
    later = await get(gateway, start="2026-03-14")
    assert later["totals"] == sums(2)


async def test_the_operator_sees_all_tenants(gateway: Gateway, records: list[UsageRecord]) -> None:
    answer = await get(gateway, "/admin/v1/usage")
    assert answer["totals"]["requests"] == 5
    assert answer["totals"]["prompt_tokens"] == 1040
    assert {row["tenant_id"] for row in answer["data"]} == {gateway.tenant_id, "tn_other"}
    one = await get(gateway, "/admin/v1/usage", tenant_id="tn_other", group_by="tenant,model")
    assert [(row["tenant_id"], row["model"], row["prompt_tokens"]) for row in one["data"]] == [
        ("tn_other", "support:3", 1000)
    ]
    for groupings in ("day", "adapter", "tenant", "hour,key,model,endpoint,tenant"):
        rows = (await get(gateway, "/admin/v1/usage", group_by=groupings))["data"]
        assert sum(row["prompt_tokens"] for row in rows) == 1040


async def test_pages(gateway: Gateway, records: list[UsageRecord]) -> None:
    whole = await get(gateway, group_by="day,model,key")
    seen: list[Any] = []
    after: dict[str, str] = {}
    while True:
        page = await get(gateway, group_by="day,model,key", limit=1, **after)
        assert page["totals"] == whole["totals"]
        seen += page["data"]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert seen == whole["data"]
    assert len(seen) == 4


async def test_the_default_period_is_the_last_thirty_days(gateway: Gateway, store: Store) -> None:
    mine = {"tenant_id": gateway.tenant_id, "prompt_tokens": 1}
    await settle(store, *(opened(**mine, started_at=utc_now() - timedelta(days=age)) for age in (0, 29, 40)))
    async with gateway.http() as http:
        assert (await http.get("/v1/usage")).json()["totals"]["requests"] == 2
        everything = await http.get("/v1/usage", params={"start": "2020-01-01"})
    assert everything.json()["totals"]["requests"] == 3


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"group_by": "weekday"}, "group_by"),
        ({"group_by": "tenant"}, "group_by"),
        ({"group_by": "hour,day"}, "group_by"),
        ({"start": "yesterday"}, "start"),
        ({"start": "0001-01-01"}, "start"),
        ({"end": "9999-12-31T23:59:59-12:00"}, "end"),
        ({"start": "2026-04-02"}, "start"),
        ({"start": "NaN"}, "start"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"after": "WzFd"}, "after"),
        ({"after": "\0"}, "after"),
        ({"adapter": "a\0b"}, "adapter"),
        ({"adapter": "x" * 65}, "adapter"),
        ({"key_id": "' OR 1=1 --"}, "key_id"),
        ({"format": "xlsx"}, "format"),
    ],
)
async def test_invalid_queries_are_rejected_by_name(gateway: Gateway, params: dict[str, str], param: str) -> None:
    for form in ({}, {"format": "csv"}):
        error = (await get(gateway, status=400, **form | params))["error"]
        assert error["param"] == param
        assert error["type"] == "invalid_request_error"


async def test_csv_contains_every_row(
    gateway: Gateway, records: list[UsageRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loragate.gateway.operations.usage_report.MAX_ROWS", 1)  # several pages
    listed = (await get(gateway, "/admin/v1/usage", group_by="day,tenant,adapter"))["data"]
    async with gateway.admin() as http:
        params = IN_MARCH | {"group_by": "day,tenant,adapter", "format": "csv"}
        response = await http.get("/admin/v1/usage", params=params)
        asked = await http.get("/admin/v1/usage", params=IN_MARCH, headers={"accept": "text/csv, */*;q=0.1"})
        json = await http.get("/admin/v1/usage", params=IN_MARCH | {"format": "json"}, headers={"accept": "text/csv"})
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert response.headers["content-disposition"] == 'attachment; filename="usage.csv"'
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert list(rows[0]) == ["start", "end", "tenant_id", "adapter", *SUMS]
    expected = [{k: "" if v is None else str(v) for k, v in row.items() if k not in ("object", "id")} for row in listed]
    assert rows == expected
    assert len(rows) == 4
    assert asked.headers["content-type"].startswith("text/csv")
    assert json.headers["content-type"] == "application/json"


async def test_an_empty_csv_has_its_header(gateway: Gateway) -> None:
    async with gateway.http() as http:
        response = await http.get("/v1/usage", params={"format": "csv", "group_by": "model"})
    assert response.text == ",".join(["model", *SUMS]) + "\r\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1"])
def test_no_cell_becomes_a_formula(text: str) -> None:
    (row,) = csv.reader(io.StringIO(csv_lines([[text, "plain", -5, None]]).decode(), newline=""))
    assert row == [f"'{text}", "plain", "-5", ""]


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements sent to any database."""
    sent: list[str] = []

    def remember(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", remember)
    yield sent
    event.remove(Engine, "before_cursor_execute", remember)


async def test_a_page_costs_two_statements_and_never_reads_the_ledger(
    gateway: Gateway, records: list[UsageRecord], statements: list[str]
) -> None:
    await get(gateway)  # the key is cached from here on
    await get(gateway, "/admin/v1/usage")
    for path, params in (
        ("/v1/usage", {"group_by": "hour,model,key"}),
        ("/admin/v1/usage", {"group_by": "day,tenant,adapter,model,key,endpoint", "limit": 1}),
    ):
        statements.clear()
        await get(gateway, path, **params)
        asked = [statement for statement in statements if "usage_sums" in statement]
        assert len(asked) == 2
        assert not any(statement.startswith("SELECT") and "usage_records" in statement for statement in statements)


async def test_amounts_where_there_are_prices(
    config: GatewayConfig, engine: StubEngine, tenants: tuple[str, str, str]
) -> None:
    price = Price(prompt=Decimal("0.5"), completion=Decimal("1.5"))
    priced = replace(config, prices=(price,), currency="EUR")
    async with serving(priced, engine, tenants) as gateway:
        await gateway.until_ready()
        store = await Store.open(config.database_url, config.blob_url, config.secret_key)
        await settle(store, opened(tenant_id=gateway.tenant_id, started_at=NOON, prompt_tokens=3, amount=15_000))
        await store.close()
        answer = await get(gateway)
    assert answer["totals"]["amount"] == answer["data"][0]["amount"] == "0.0000015"
    assert answer["totals"]["currency"] == "EUR"
