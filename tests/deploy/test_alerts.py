"""deploy/prometheus/alerts.yaml: rules about metrics that exist, each with a section of the page on alerts."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
(GROUP,) = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())["groups"]
RULES: list[dict[str, Any]] = GROUP["rules"]
ROW = re.compile(r"^\| `(loragate_\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)
OF_PROMETHEUS = {"job", "instance", "le"}


def metrics() -> dict[str, set[str]]:
    """Return the labels of each series on the page of metrics, which a test holds against a scrape."""
    found = {}
    for name, kind, labels in ROW.findall((ROOT / "docs/observability.md").read_text()):
        series = f"{name}_bucket" if kind == "histogram" else name
        found[series] = set(re.findall(r"`(\w+)`", labels))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_is_about_series_and_labels_that_exist(rule: dict[str, Any]) -> None:
    known = metrics() | {"up": set()}
    named = re.findall(r"\b(loragate_\w+|up)\b(?=[\[{ ])", rule["expr"])
    assert named
    assert set(named) <= known.keys()
    labels = set.union(*(known[each] for each in named)) | OF_PROMETHEUS
    asked = re.findall(r"[{,] ?(\w+)(?:=|!=|=~)\"", rule["expr"])
    asked += re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    assert set(asked) <= labels
    summed = re.match(r"sum\b|histogram_quantile", rule["expr"]) and "by (" not in rule["expr"]
    assert not (summed and "$labels" in rule["annotations"]["summary"]), "a sum has no labels"


def test_each_alert_has_a_section_and_each_section_an_alert() -> None:
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE)
    assert sections == [rule["alert"] for rule in RULES]


def test_rules_have_what_prometheus_accepts() -> None:
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
        assert rule["expr"].count("(") == rule["expr"].count(")")
