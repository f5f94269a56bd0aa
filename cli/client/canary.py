"""A share of an alias' requests for another version, which leaves the others' shares among themselves as they are."""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import gcd
from typing import Any

from loragate.cli.client.http.api import Api
from loragate.cli.client.http.paths import path
from loragate.cli.refusal import Refusal

CANARY = "canary"
_MOST_WEIGHT = (1 << 31) - 1

Targets = list[dict[str, int]]


def send_share(api: Api, name: str, alias: str, version: int | None, percent: int) -> dict[str, Any]:
    """Gives `version` so many percent of the alias' requests; returns the alias as it is now.

    Without a version it is the one that the alias `canary` points at, or else the latest one.
    """
    adapter = api.call("GET", path("v1", "adapters", name))
    targets = adapter["aliases"].get(alias)
    if targets is None:
        raise Refusal(f"{name} has no alias {alias}: `loragate adapters alias {name} {alias} VERSION` makes one")
    shared = with_share(targets, version or _candidate(adapter), percent)
    placed = api.call("PUT", path("v1", "adapters", name, "aliases", alias), json={"targets": shared})
    return dict(placed)


def with_share(targets: Sequence[Mapping[str, int]], version: int, percent: int) -> Targets:
    """Those targets with `percent` of all requests for the version, in the smallest whole weights."""
    others = [target for target in targets if target["version"] != version]
    if not others:
        raise Refusal(f"version {version} gets all of these requests already: name another one with --version")
    whole = sum(target["weight"] for target in others)
    weights = [target["weight"] * (100 - percent) for target in others] + [whole * percent]
    common = reduce(gcd, weights)
    if max(weights) // common > _MOST_WEIGHT:
        raise Refusal("the weights of this alias are too fine to be shared: set them with `loragate adapters alias`")
    versions = [*(target["version"] for target in others), version]
    shared = [{"version": each, "weight": weight // common} for each, weight in zip(versions, weights, strict=True)]
    return sorted(shared, key=lambda target: target["version"])


def shares(targets: Sequence[Mapping[str, int]]) -> str:
    """ "version 1: 90 %, version 2: 10 %"."""
    whole = sum(target["weight"] for target in targets)
    return ", ".join(f"version {target['version']}: {100 * target['weight'] / whole:.4g} %" for target in targets)


def _candidate(adapter: Mapping[str, Any]) -> int:
    targets = adapter["aliases"].get(CANARY)
    if targets is None:
        return int(adapter["latest_version"])
    if len(targets) > 1:
        raise Refusal(f"the alias {CANARY} points at several versions: name one with --version")
    return int(targets[0]["version"])
