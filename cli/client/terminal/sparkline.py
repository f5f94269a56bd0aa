"""A line chart in one line of text."""

from collections.abc import Sequence
from itertools import pairwise

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return at most `width` characters, from the first value to the last; the tallest bar is the largest value."""
    if not values:
        return ""
    shown = _means(values, min(width, len(values)))
    low, high = min(shown), max(shown)
    step = (high - low) / (len(_BARS) - 1) or 1.0
    return "".join(_BARS[round((value - low) / step)] for value in shown)


def _means(values: Sequence[float], count: int) -> list[float]:
    edges = [len(values) * place // count for place in range(count + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges)]
