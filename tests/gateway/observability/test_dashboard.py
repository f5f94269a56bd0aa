"""The Grafana dashboard queries existing metrics."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway.grpc_client import Client
from tests.gateway.metrics_page import page_after_traffic
from tests.gateway.running_gateway import Gateway

DASHBOARD = json.loads((Path(__file__).parents[3] / "deploy/grafana/loragate.json").read_text())
METRIC = re.compile(r"(?:loragate_|vllm:)[a-z0-9_]+")
OF_PROMETHEUS = {"job", "le"}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    variables = [v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
    return [target["expr"] for panel in panels() for target in panel["targets"]] + variables


@pytest.fixture
async def labels(gateway: Gateway, client: Client) -> dict[str, set[str]]:
    """Return the labels of each series in a scrape with the admin key."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(await page_after_traffic(gateway, client)):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


async def test_queries_use_existing_series_and_labels(labels: dict[str, set[str]]) -> None:
    assert len(expressions()) > 50
    for expression in expressions():
        metrics = METRIC.findall(expression)
        assert metrics, expression
        assert set(metrics) <= labels.keys(), expression
        asked = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
        asked |= set(re.findall(r"[{,] ?(\w+)=~?\"", expression))
        assert asked - OF_PROMETHEUS <= set.intersection(*(labels[metric] for metric in metrics)), expression


def test_legends_name_labels_that_the_query_keeps() -> None:
    for panel in panels():
        for target in panel["targets"]:
            kept = {label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= kept, target


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_panel_has_a_description() -> None:
    for panel in panels():
        assert panel["title"]
        assert panel["description"]
        assert panel["targets"]
