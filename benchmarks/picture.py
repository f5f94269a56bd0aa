"""Figures as SVG, for the docs: plain enough to be read in a diff."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_COLOURS = ("#3b6ea5", "#e08e45", "#6aa56a", "#b0b7c3")
_WIDTH, _LEFT, _LINE = 720, 120, 26
_STYLE = "font: 13px system-ui, sans-serif; fill: #222"


@dataclass(frozen=True)
class Bar:
    """Its parts are drawn one behind the other."""

    name: str
    parts: Sequence[float]


def stacked(title: str, bars: Sequence[Bar], parts: Sequence[str]) -> str:
    """One bar a line, with its sum behind it."""
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
    """By step, from left to right; the axis begins at 0."""
    top, most = 62, max(max(values) for values in lines.values())
    shapes = [_legend(tuple(lines), 30)]
    for mark in (0.0, most / 2, most):
        y = top + (height - top) * (1 - mark / most)
        shapes.append(
            f'<line x1="40" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>{_text(0, y + 4, f"{mark:.1f}")}'
        )
    for values, colour in zip(lines.values(), _COLOURS, strict=False):
        step = (_WIDTH - 40) / max(1, len(values) - 1)
        points = " ".join(
            f"{40 + place * step:.1f},{top + (height - top) * (1 - value / most):.1f}"
            for place, value in enumerate(values)
        )
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return _picture(title, height + 10, shapes)


def _legend(names: Sequence[str], y: int) -> str:
    shapes, x = "", _LEFT
    for name, colour in zip(names, _COLOURS, strict=False):
        shapes += f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>{_text(x + 18, y + 11, name)}'
        x += 40 + 8 * len(name)
    return shapes


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" style="{_STYLE}">{escape(words)}</text>'


def _picture(title: str, height: int, shapes: Sequence[str]) -> str:
    body = "\n".join([f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>', _text(0, 16, title), *shapes])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">\n{body}\n</svg>\n'
    )
