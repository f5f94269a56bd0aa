"""Aliases: their targets as typed on the command line, and shares for a canary."""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import gcd
from typing import Any

from loragate.cli.client.http.api import Api, path
from loragate.cli.client.terminal.output import show_json
from loragate.cli.errors import BAD_SETTING, CliError

CANARY = "canary"
_MAX_WEIGHT = (1 << 31) - 1

Targets = list[dict[str, int]]


def set_canary_share(api: Api, name: str, alias: str, version: int | None, percent: int) -> dict[str, Any]:
    """Give `version` this percentage of the alias' requests, and return the updated alias.

    The default version is the one that the alias `canary` points at, or else the latest one. The other targets keep
    their proportions to each other.
    """
    adapter = api.call("GET", path("v1", "adapters", name))
    targets = adapter["aliases"].get(alias)
    if targets is None:
        raise CliError(f"{name} has no alias {alias}: create it with `loragate adapters alias {name} {alias} VERSION`")
    shared = with_share(targets, version or _candidate(adapter), percent)
    placed = api.call("PUT", path("v1", "adapters", name, "aliases", alias), json={"targets": shared})
    return dict(placed)


def with_share(targets: Sequence[Mapping[str, int]], version: int, percent: int) -> Targets:
    """Return the targets with `percent` of all requests for the version, in the smallest whole weights."""
    others = [target for target in targets if target["version"] != version]
    if not others:
        raise CliError(f"version {version} already gets all requests of this alias: choose another one with --version")
    whole = sum(target["weight"] for target in others)
    weights = [target["weight"] * (100 - percent) for target in others] + [whole * percent]
    common = reduce(gcd, weights)
    if max(weights) // common > _MAX_WEIGHT:
        raise CliError(
            "the weights of this alias are too large to be split further: set them with `loragate adapters alias`"
        )
    versions = [*(target["version"] for target in others), version]
    shared = [{"version": each, "weight": weight // common} for each, weight in zip(versions, weights, strict=True)]
    return sorted(shared, key=lambda target: target["version"])


def shares(targets: Sequence[Mapping[str, int]]) -> str:
    """Return the shares as text: "version 1: 90 %, version 2: 10 %"."""
    whole = sum(target["weight"] for target in targets)
    return ", ".join(f"version {target['version']}: {100 * target['weight'] / whole:.4g} %" for target in targets)


def _candidate(adapter: Mapping[str, Any]) -> int:
    targets = adapter["aliases"].get(CANARY)
    if targets is None:
        return int(adapter["latest_version"])
    if len(targets) > 1:
        raise CliError(f"the alias {CANARY} points at several versions: choose one with --version")
    return int(targets[0]["version"])


def parse_targets(texts: Sequence[str]) -> list[dict[str, int]]:
    """Parse targets such as `3`, or `3=90 4=10`, into the API's form.

    Raise CliError for anything that is not VERSION or VERSION=WEIGHT.
    """
    return [_target(text) for text in texts]


def _target(text: str) -> dict[str, int]:
    version, separator, weight = text.partition("=")
    try:
        return {"version": int(version)} | ({"weight": int(weight)} if separator else {})
    except ValueError:
        raise CliError(f"{text} is not VERSION or VERSION=WEIGHT, such as 3 or 3=90", BAD_SETTING) from None


def show_alias(alias: Mapping[str, Any], *, as_json: bool) -> None:
    """Print which version gets which share of the alias' requests."""
    if as_json:
        show_json(alias)
    else:
        print(f"{alias['name']}@{alias['alias']}: {shares(alias['targets'])}")
