"""How pages parse the API's responses."""

import json
import shlex

import pytest

from loragate.panel.api import ApiError
from loragate.panel.exposition import parse, quantile
from loragate.panel.pages.adapters.differences import differences
from loragate.panel.pages.operations.audit import facts_set
from loragate.panel.pages.playground.code import as_curl, as_python
from loragate.panel.parts.display import formats

PAGE = """# HELP x_total Things.
# TYPE x_total counter
x_total{route="/v1",status="200"} 3.0
x_total{route="/a \\"b\\", c",status="500"} 2.0
t_bucket{le="0.1"} 2
t_bucket{le="1.0"} 6
t_bucket{le="+Inf"} 6
"""


def test_samples_are_summed_by_their_labels() -> None:
    page = parse(PAGE)
    assert page.total("x_total") == 5
    assert page.total("x_total", lambda labels: labels["status"].startswith("5")) == 2
    assert page.total("y_total") == 0
    assert page.by("status", "x_total") == {"200": 3, "500": 2}
    assert page.buckets("t") == {0.1: 2.0, 1.0: 6.0, float("inf"): 6.0}


def test_invalid_metrics_are_reported() -> None:
    with pytest.raises(ApiError, match="cannot be read"):
        parse("<html>{")


def test_quantiles_cover_the_samples_between_two_scrapes() -> None:
    before, after = {0.1: 2.0, 1.0: 2.0, float("inf"): 2.0}, {0.1: 2.0, 1.0: 6.0, float("inf"): 6.0}
    assert quantile(0.5, before, after) == pytest.approx(0.55)
    assert quantile(0.5, after, after) is None
    assert quantile(0.99, {}, {0.1: 0.0, float("inf"): 3.0}) == 0.1


def test_differences_go_into_objects() -> None:
    old, new = {"r": 4, "x": {"a": 1, "b": 2}, "same": 1}, {"r": 8, "x": {"a": 1}, "same": 1}
    assert differences(old, new) == [("r", 4, 8), ("x.b", 2, None)]


def test_an_audit_entrys_facts_omit_empty_values() -> None:
    limits = {"requests_per_minute": None, "tokens_per_day": 0}
    assert facts_set({"name": "a", "expires_at": None, "limits": limits}) == {
        "name": "a",
        "limits": {"tokens_per_day": 0},
    }
    assert facts_set({"limits": {"requests_per_minute": None}}) == facts_set(None) == {}


def test_code_to_copy_is_code() -> None:
    body = {"model": "a", "messages": [{"role": "user", "content": 'it\'s "$HOME" `x`'}]}
    words = shlex.split(as_curl("http://127.0.0.1:8000", body))
    assert json.loads(words[words.index("-d") + 1]) == body
    compile(as_python("http://127.0.0.1:8000", body), "example", "exec")


def test_figures_are_formatted() -> None:
    assert [formats.count(value) for value in (None, 0, 9999, 12_345, 4_500_000)] == [
        "–",
        "0",
        "9,999",
        "12.3k",
        "4.5M",
    ]
    assert [formats.size(value) for value in (5, 5160, 2_000_000)] == ["5 B", "5.16 KB", "2 MB"]
    assert [formats.seconds(value) for value in (None, 0.0123, 2.5)] == ["–", "12 ms", "2.50 s"]
