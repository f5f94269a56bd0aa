"""The differences between two versions of an adapter: their configs, their properties and their lineage."""

from collections.abc import Iterator, Mapping
from typing import Any

from loragate.cli.client.http.api import Api, path
from loragate.cli.client.transfer.folders import CONFIG

_FIELDS = ("digest", "rank", "size_bytes", "base_model", "base_digest", "created_at")


def differences(api: Api, name: str, first: int, second: int) -> list[dict[str, Any]]:
    """Return one row for each field that differs."""
    one, other = (_facts(api, name, version) for version in (first, second))
    return [
        {"field": field, str(first): one.get(field), str(second): other.get(field)}
        for field in sorted(one.keys() | other.keys())
        if one.get(field) != other.get(field)
    ]


def _facts(api: Api, name: str, version: int) -> dict[str, Any]:
    here = ("v1", "adapters", name, "versions", version)
    described = api.call("GET", path(*here))
    config = api.call("GET", path(*here, "files", CONFIG))
    facts = {field: described[field] for field in _FIELDS} | dict(_flat("lineage", described.get("lineage") or {}))
    return facts | {f"{CONFIG}: {field}": value for field, value in config.items()}


def _flat(prefix: str, facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in facts.items():
        yield f"{prefix}.{field}", value
