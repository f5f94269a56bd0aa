"""Charts as SVG for the docs, plain enough to read in a diff."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#3b6ea5", "#e08e45", "#6aa56a", "#b0b7c3")
_WIDTH, _LEFT, _LINE = 720, 120, 26
_STYLE = "font: 13px system-ui, sans-serif; fill: #222"


@dataclass(frozen=True)
class Bar:
    """A bar of a stacked chart."""

    name: str
    parts: Sequence[float]


def stacked(title: str, bars: Sequence[Bar], parts: Sequence[str]) -> str:
    """Return a chart with one stacked bar per line, followed by its sum."""
    scale = (_WIDTH - _LEFT - 80) / max(sum(bar.parts) for bar in bars)
    shapes = [_legend(parts, 30)]
    for line, bar in enumerate(bars):
        x, y = float(_LEFT), 62 + line * _LINE
        shapes.append(_text(0, y + 14, bar.name))
        for part, colour in zip(bar.parts, _COLOURS, strict=False):
            shapes.append(f'<rect x="{x:.1f}" y="{y}" width="{part * scale:.1f}" height="18" fill="{colour}"/>')
            x += part * scale
        shapes.append(_text(x + 6, y + 14, f"{sum(bar.parts):,.0f}"))
    return _picture(title, 62 + len(bars) * _LINE, shapes)


def curves(title: str, lines: Mapping[str, Sequence[float]], height: int = 260) -> str:
    """Return a line chart by step; the vertical axis starts at 0."""
    top, maximum = 62, max(max(values) for values in lines.values())
    shapes = [_legend(tuple(lines), 30)]
    for mark in (0.0, maximum / 2, maximum):
        y = top + (height - top) * (1 - mark / maximum)
        shapes.append(
            f'<line x1="40" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>{_text(0, y + 4, f"{mark:.1f}")}'
        )
    for values, colour in zip(lines.values(), _COLOURS, strict=False):
        step = (_WIDTH - 40) / max(1, len(values) - 1)
        points = " ".join(
            f"{40 + place * step:.1f},{top + (height - top) * (1 - value / maximum):.1f}"
            for place, value in enumerate(values)
        )
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return _picture(title, height + 10, shapes)


@dataclass(frozen=True)
class Panel:
    """One chart of several: lines over named places, on an axis from 0."""

    title: str
    lines: Mapping[str, Sequence[float]]


def panels(title: str, below: str, places: Sequence[str], lines: Sequence[str], charts: Sequence[Panel]) -> str:
    """Return small charts over the same places, two in a row. `below` says what the places are; a chart may lack some
    of the lines."""
    top, height, columns = 90, 200, 2
    colours = dict(zip(lines, _COLOURS, strict=False))
    shapes = [_legend(lines, 30), _text(0, 62, f"horizontal: {below}")]
    for number, chart in enumerate(charts):
        left = 44 + number % columns * _WIDTH / columns
        shapes += _lines(chart, colours, places, left, top + 12 + number // columns * height)
    return _picture(title, top + -(-len(charts) // columns) * height, shapes)


def _lines(chart: Panel, colours: Mapping[str, str], places: Sequence[str], left: float, top: float) -> list[str]:
    width, height = 280.0, 130.0
    maximum = max(map(max, chart.lines.values()))
    step = width / max(1, len(places) - 1)
    shapes = [_text(left, top - 8, chart.title)]
    for mark in (0.0, maximum / 2, maximum):
        y = top + height * (1 - mark / maximum)
        shapes.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        shapes.append(_text(left - 42, y + 4, f"{mark:,.2f}" if maximum < 10 else f"{mark:,.0f}"))
    shapes += [_text(left + place * step - 4 * len(name), top + height + 16, name) for place, name in enumerate(places)]
    for name, values in chart.lines.items():
        points = " ".join(
            f"{left + place * step:.1f},{top + height * (1 - value / maximum):.1f}"
            for place, value in enumerate(values)
        )
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="1.5"/>')
    return shapes


@dataclass(frozen=True)
class Roof:
    """The limits of a machine: bytes per second and operations per second."""

    name: str
    bandwidth: float
    compute: float

    def at(self, intensity: float) -> float:
        """Return the attainable operations per second at a number of operations per byte."""
        return min(self.bandwidth * intensity, self.compute)


@dataclass(frozen=True)
class Launches:
    """The launches of one kernel: (operations per byte, operations per second) of each.

    Points that were calculated and not measured are hollow.
    """

    name: str
    points: Sequence[tuple[float, float]]
    measured: bool


def rooflines(title: str, roofs: Sequence[Roof], kernels: Sequence[Launches]) -> str:
    """Return one panel per kernel with logarithmic axes (Williams et al., 2009, doi:10.1145/1498765.1498785)."""
    top, height, columns = 96, 205, 2
    shapes = [_legend([roof.name for roof in roofs], 30), _text(0, 62, "vertical: FLOP/s, horizontal: FLOP per byte")]
    for place, kernel in enumerate(kernels):
        axes = _LogLog(44 + place % columns * _WIDTH / columns, top + place // columns * height, 290, 150)
        shapes += _panel(axes, roofs, kernel)
    return _picture(title, top + -(-len(kernels) // columns) * height, shapes)


@dataclass(frozen=True)
class _LogLog:
    """Axes of operations per byte (horizontal, 0.05 to 2,000) and operations per second (vertical, 50 G to 2 P)."""

    left: float
    top: float
    width: float
    height: float

    def x(self, intensity: float) -> float:
        return self.left + self.width * math.log10(max(intensity, 0.05) / 0.05) / math.log10(2000 / 0.05)

    def y(self, speed: float) -> float:
        return self.top + self.height * (1 - math.log10(max(speed, 5e10) / 5e10) / math.log10(2e15 / 5e10))


def _panel(axes: _LogLog, roofs: Sequence[Roof], kernel: Launches) -> list[str]:
    bottom = axes.top + axes.height
    shapes = [_text(axes.left, axes.top - 6, kernel.name)]
    for intensity, name in ((0.1, "0.1"), (1, "1"), (10, "10"), (100, "100"), (1000, "1000")):
        x = axes.x(intensity)
        shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{axes.top}" y2="{bottom}" stroke="#eee"/>')
        shapes.append(_text(x - 8, bottom + 14, name))
    for speed, name in ((1e11, "0.1T"), (1e12, "1T"), (1e13, "10T"), (1e14, "100T"), (1e15, "1P")):
        y = axes.y(speed)
        shapes.append(f'<line x1="{axes.left}" x2="{axes.left + axes.width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>')
        shapes.append(_text(axes.left - 38, y + 4, name))
    for roof, colour in zip(roofs, _COLOURS, strict=False):
        corners = (0.05, roof.compute / roof.bandwidth, 2000)
        line = " ".join(f"{axes.x(i):.1f},{axes.y(roof.at(i)):.1f}" for i in corners)
        shapes.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    fill = "#b03a2e" if kernel.measured else "none"
    for intensity, speed in kernel.points:
        place = f'cx="{axes.x(intensity):.1f}" cy="{axes.y(speed):.1f}"'
        shapes.append(f'<circle {place} r="3.5" fill="{fill}" stroke="#b03a2e"/>')
    return shapes


def _legend(names: Sequence[str], y: int) -> str:
    shapes, x = "", _LEFT
    for name, colour in zip(names, _COLOURS, strict=False):
        shapes += f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>{_text(x + 18, y + 11, name)}'
        x += 40 + 8 * len(name)
    return shapes


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{_STYLE}">{escape(text)}</text>'


def _picture(title: str, height: int, shapes: Sequence[str]) -> str:
    body = "\n".join([f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>', _text(0, 16, title), *shapes])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">\n{body}\n</svg>\n'
    )
