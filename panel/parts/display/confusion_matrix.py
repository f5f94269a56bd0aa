"""A confusion matrix: a table with a row for each label and a column for each prediction, shaded by its shares."""

from collections.abc import Sequence

from loragate.panel.parts.display import formats
from loragate.panel.parts.elements.tag import div, tag


def confusion_matrix(label: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> None:
    """Draw the matrix, with `label` as its name for screen readers. Row i, column j: the examples with the label
    `names[i]` for which `names[j]` was predicted."""
    with div("table-box", tabindex="0", role="region", aria_label=label), tag("table", classes="matrix"):
        tag("caption", label, classes="visually-hidden")
        with tag("thead"), tag("tr"):
            tag("th", "label ↓ predicted →", scope="col")
            for name in names:
                tag("th", name, scope="col")
            tag("th", "Recall", scope="col")
        with tag("tbody"):
            for place, (name, row) in enumerate(zip(names, counts, strict=True)):
                _row(place, name, row)


def _row(place: int, name: str, row: Sequence[int]) -> None:
    total = sum(row)
    with tag("tr"):
        tag("th", name, scope="row")
        for column, count in enumerate(row):
            share = count / total if total else 0.0
            kind = "right" if column == place else "wrong"
            tag("td", formats.count(count), classes=kind).style(f"--share: {share:.0%}")
        tag("td", f"{row[place] / total:.0%}" if total else "–")
