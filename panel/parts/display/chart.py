"""Charts: SVG shapes that fill their container, labels beside them, colours from the theme."""

from collections.abc import Sequence
from html import escape

from nicegui import ui

from loragate.panel.parts.display import formats

_MAX_LABELS = 6


def bars(label: str, values: Sequence[float], names: Sequence[str]) -> None:
    """Draw a bar for each value, with some of the names below."""
    top = _ceiling(values)
    step = 100 / max(1, len(values))
    shapes = "".join(_bar(i * step, step, value / top * 100, names[i], value) for i, value in enumerate(values))
    shown = min(len(names), _MAX_LABELS)
    _draw(label, top, shapes, [names[round(i * (len(names) - 1) / max(1, shown - 1))] for i in range(shown)])


def line(label: str, values: Sequence[float], *, max_points: int = 60, second: Sequence[float] = ()) -> None:
    """Draw the last `max_points` values, the latest at the right edge, and `second` in another colour."""
    top = _ceiling([*values, *second])
    shapes = _way(values, max_points, top) + (
        f'<g class="second">{_way(second, max_points, top)}</g>' if second else ""
    )
    _draw(label, top, shapes, ())


def curve(label: str, points: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]] = ()) -> None:
    """Draw values over x, such as a job's step, and `second` on the same scale in another colour."""
    places = [x for x, _ in (*points, *second)]
    first, last = min(places), max(places)
    top = _ceiling([y for _, y in (*points, *second)])

    def way(line: Sequence[tuple[float, float]]) -> str:
        return _drawn([((x - first) / max(1, last - first) * 100, y / top * 100) for x, y in line])

    shapes = way(points) + (f'<g class="second">{way(second)}</g>' if second else "")
    _draw(label, top, shapes, [f"{place:,.0f}" for place in (first, last)])


def _bar(x: float, step: float, height: float, name: str, value: float) -> str:
    return (
        f'<rect class="stick" x="{x + step * 0.12:.2f}" y="{100 - height:.2f}" width="{step * 0.76:.2f}" '
        f'height="{height:.2f}"><title>{escape(name)}: {value:,.0f}</title></rect>'
    )


def _way(values: Sequence[float], max_points: int, top: float) -> str:
    step = 100 / max(1, max_points - 1)
    first = 100 - step * (len(values) - 1)
    return _drawn([(first + i * step, value / top * 100) for i, value in enumerate(values)])


def _drawn(line: Sequence[tuple[float, float]]) -> str:
    """Return the SVG of a line through points given in percent."""
    if not line:
        return ""
    points = " ".join(f"{x:.2f},{100 - y:.2f}" for x, y in line)
    area = f"{line[0][0]:.2f},100 {points} {line[-1][0]:.2f},100"
    return f'<polygon class="area" points="{area}"/><polyline class="line" points="{points}"/>'


def _draw(label: str, top: float, shapes: str, names: Sequence[str]) -> None:
    grid = "".join(f'<line class="grid" x1="0" x2="100" y1="{y}" y2="{y}"/>' for y in (0, 50, 100))
    up = "".join(f"<span>{_mark(top * share)}</span>" for share in (1, 0.5, 0))
    along = "".join(f"<span>{escape(name)}</span>" for name in names)
    ui.html(
        f'<div class="plot"><div class="up" aria-hidden="true">{up}</div>'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f"{grid}{shapes}</svg>"
        f'<div class="along" aria-hidden="true">{along}</div></div>',
        sanitize=False,
    )


def _mark(value: float) -> str:
    return formats.count(value) if value >= 10 or value == round(value) else f"{value:.2g}"


def _ceiling(values: Sequence[float]) -> float:
    """Return a round number that no value exceeds."""
    most = max(values, default=0)
    if most <= 0:
        return 1.0
    step = 10.0 ** (len(f"{most:.0f}") - 1) if most >= 1 else 0.1
    return float(-(-most // step) * step)
