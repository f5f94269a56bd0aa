"""An alias' targets as they are typed: `3`, or `3=90 4=10`."""

from collections.abc import Sequence

from loragate.cli.refusal import BAD_SETTING, Refusal


def parse_targets(texts: Sequence[str]) -> list[dict[str, int]]:
    """As the API takes them. Raises Refusal for anything that is not VERSION or VERSION=WEIGHT."""
    return [_target(text) for text in texts]


def _target(text: str) -> dict[str, int]:
    version, separator, weight = text.partition("=")
    try:
        return {"version": int(version)} | ({"weight": int(weight)} if separator else {})
    except ValueError:
        raise Refusal(f"{text} is not VERSION or VERSION=WEIGHT, such as 3 or 3=90", BAD_SETTING) from None
