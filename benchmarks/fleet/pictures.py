"""Charts of the fleet's figures: `docs/pictures/fleet-engines.svg` and `fleet-adapters.svg`.

python -m benchmarks.fleet.pictures
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fleet.__main__ import CATALOGUE_ENGINES, CATALOGUES, NAME, SCALE, SCALED_POLICIES
from benchmarks.lib.report import load_figures
from benchmarks.lib.svg import Panel, panels

_PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
_SHOWN = {
    "loads per request": "loads_per_request",
    "first token, median (ms)": "first_token_ms_p50",
    "first token, p99 (ms)": "first_token_ms_p99",
    "first token, p99 of the least popular tenth (ms)": "first_token_ms_p99_of_coldest_decile",
}

Rows = Mapping[tuple[str, str], Mapping[str, Any]]


def main() -> None:
    figures = load_figures(NAME)
    (_PICTURES / "fleet-engines.svg").write_text(engines_picture(figures))
    (_PICTURES / "fleet-adapters.svg").write_text(adapters_picture(figures))


def engines_picture(figures: Mapping[str, Any]) -> str:
    """Return the charts over the number of engines, with 100 adapters for each."""
    rows, names = _rows(figures["scale"]), [f"rate {engines}" for engines in SCALE]
    shown = [_panel(title, rows, names, field) for title, field in _SHOWN.items()]
    goodput = {
        policy: [rows[f"overload {engines}", policy]["tokens_per_second"] / engines for engines in SCALE]
        for policy in SCALED_POLICIES
    }
    shown.insert(0, Panel("tokens per second of an engine, overloaded", goodput))
    moved = {each["case"]: each["joins"] for each in figures["moves"]["rows"]}
    joins = {"loragate": [moved[f"engines {engines}"] for engines in SCALE]}
    shown.append(Panel("placements that change when one joins", joins))
    title = "A fleet that grows, 100 adapters for each engine"
    return panels(title, "engines", [str(each) for each in SCALE], SCALED_POLICIES, shown)


def adapters_picture(figures: Mapping[str, Any]) -> str:
    """Return the charts over the number of adapters on the same engines."""
    rows, names = _rows(figures["catalogues"]), [f"adapters {adapters}" for adapters in CATALOGUES]
    shown = [_panel(title, rows, names, field) for title, field in _SHOWN.items()]
    shown.append(_panel("busiest engine over mean", rows, names, "most_over_mean_requests_of_an_engine"))
    places = [f"{each:,}" for each in CATALOGUES]
    title = f"More adapters on {CATALOGUE_ENGINES} engines with 16 slots each"
    return panels(title, "adapters", places, SCALED_POLICIES, shown)


def _panel(title: str, rows: Rows, names: list[str], field: str) -> Panel:
    return Panel(title, {policy: [rows[name, policy][field] for name in names] for policy in SCALED_POLICIES})


def _rows(scenario: Mapping[str, Any]) -> Rows:
    return {(row["case"], row["policy"]): row for row in scenario["rows"]}


if __name__ == "__main__":
    main()
