"""Synthetic contents of a store: tenants and adapters with versions, aliases, tags and realistic descriptions."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from rich.progress import track
from sqlalchemy import insert, text

from loragate.adapter_store.adapters.description import Description
from loragate.adapter_store.adapters.route_summary import encode_routes
from loragate.adapter_store.adapters.search_text import search_text
from loragate.adapter_store.database.database import Database, create_engine
from loragate.adapter_store.database.urls import driver_url
from loragate.adapter_store.ids import new_id
from loragate.adapter_store.tables.adapters import (
    AdapterAliasRow,
    AdapterRow,
    AdapterTagRow,
    AdapterVersionRow,
    AliasTargetRow,
)
from loragate.adapter_store.tables.base import Base
from loragate.adapter_store.tables.installation import EngineManifestRow
from loragate.adapter_store.tables.tenants import TenantRow

BASE_DIGEST = "sha256:" + "b" * 64
RARE_TAG, RARE_WORD = "the-only-one", "xylophone"  # each occurs on one adapter
_LARGEST = 0.05  # the largest tenant's share of all adapters
_ROWS_AT_ONCE = 1000
_ALIASES = (("default", (2,)), ("canary", (1, 2)))
_WORDS, _TAGS = 5000, 300
_SOUNDS = (
    (
        "b",
        "c",
        "d",
        "f",
        "g",
        "h",
        "k",
        "l",
        "m",
        "n",
        "p",
        "r",
        "s",
        "t",
        "v",
        "w",
        "br",
        "ch",
        "gr",
        "pl",
        "st",
        "tr",
    ),
    ("a", "e", "i", "o", "u"),
    ("", "l", "m", "n", "r", "s", "t"),
)
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_ORDER = (TenantRow, AdapterRow, AdapterVersionRow, AdapterAliasRow, AliasTargetRow, AdapterTagRow)

Rows = dict[type[Base], list[dict[str, Any]]]


@dataclass(frozen=True)
class Library:
    """The stored tenants and adapters. The first tenant has a twentieth of all adapters, the others equal shares."""

    tenants: tuple[str, ...]
    adapters: tuple[tuple[str, str], ...]  # tenant and name
    ids: tuple[str, ...]
    words: tuple[str, ...]  # the most frequent first
    tags: tuple[str, ...]


async def fill(database_url: str, adapters: int, tenants: int) -> Library:
    """Fill a migrated, empty database."""
    generator = _Generator(tenants)
    database = Database(database_url)
    async with database.operator(write=True) as session:
        base = {"id": 1, "base_digest": BASE_DIGEST, "payload": b"", "updated_at": _EPOCH}
        await session.execute(insert(EngineManifestRow), [base])
        await session.execute(
            insert(TenantRow), [_tenant(owner, number) for number, owner in enumerate(generator.tenants)]
        )
    for start in track(range(0, adapters, _ROWS_AT_ONCE), description="filling"):
        rows = generator.rows(range(start, min(start + _ROWS_AT_ONCE, adapters)), rare=adapters // 3)
        async with database.operator(write=True) as session:  # small transactions: SQLite's log grows with each
            for kind in _ORDER:
                if rows[kind]:
                    await session.execute(insert(kind), rows[kind])
    await database.close()
    await _run_maintenance(database_url)
    return generator.library


async def _run_maintenance(database_url: str) -> None:
    """Run the maintenance that the database would otherwise start by itself during the measurement."""
    engine = create_engine(driver_url(database_url))
    try:
        async with engine.connect() as connection:
            if engine.dialect.name == "postgresql":
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                await connection.execute(text("VACUUM ANALYZE"))
                await connection.execute(text("CHECKPOINT"))
            else:
                await connection.execute(text("ANALYZE"))
                await connection.commit()
    finally:
        await engine.dispose()


class _Generator:
    """Generates adapters; the same in every run except for the ids."""

    def __init__(self, tenants: int) -> None:
        self._rng = random.Random(20261122)
        self.tenants = tuple(new_id("tn") for _ in range(tenants))
        self._words = tuple({_word(self._rng): None for _ in range(_WORDS)})
        self._frequencies = tuple(accumulate(1 / (rank + 1) for rank in range(len(self._words))))
        self._tags = tuple(f"team:{word}" for word in self._words[:_TAGS])
        self._adapters: list[tuple[str, str]] = []
        self._ids: list[str] = []

    @property
    def library(self) -> Library:
        return Library(self.tenants, tuple(self._adapters), tuple(self._ids), self._words, self._tags)

    def rows(self, numbers: range, rare: int) -> Rows:
        """Return the rows of these adapters; only number `rare` has the rare word and the rare tag."""
        rows: Rows = {kind: [] for kind in _ORDER}
        for number in numbers:
            self._add(rows, number, number == rare)
        return rows

    def _add(self, rows: Rows, number: int, rare: bool) -> None:
        first = number % round(1 / _LARGEST) == 0
        owner = self.tenants[0 if first else 1 + number % (len(self.tenants) - 1)]
        name = f"{'-'.join(self._draw_words(2))}-{number}"[:64]
        tags = {self._rng.choice(self._tags) for _ in range(2)} | ({"prod"} if number % 3 == 0 else set())
        description = Description(
            tuple(sorted(tags | ({RARE_TAG} if rare else set()))),
            " ".join(self._draw_words(12)) + (f" {RARE_WORD}" if rare else ""),
        )
        digests = {version: f"sha256:{number:056x}{version:08x}" for version in (1, 2)}
        targets = [(alias, version, 1, digests[version]) for alias, versions in _ALIASES for version in versions]
        adapter = _adapter(owner, name, description, _EPOCH + timedelta(seconds=number), encode_routes(targets))
        self._adapters.append((owner, name))
        self._ids.append(adapter["id"])
        here = {"tenant_id": owner, "adapter_id": adapter["id"]}
        at = {"created_at": adapter["created_at"]}
        rows[AdapterRow].append(adapter)
        rows[AdapterVersionRow] += [_version(here, at, version, digest) for version, digest in digests.items()]
        rows[AdapterAliasRow] += [
            {**here, **at, "name": alias, "updated_at": at["created_at"]} for alias, _ in _ALIASES
        ]
        rows[AliasTargetRow] += [
            {**here, "alias": alias, "version": version, "weight": weight} for alias, version, weight, _ in targets
        ]
        rows[AdapterTagRow] += [{**here, **at, "tag": tag} for tag in description.tags]

    def _draw_words(self, count: int) -> list[str]:
        """Draw Zipf-distributed words."""
        return self._rng.choices(self._words, cum_weights=self._frequencies, k=count)


def _word(rng: random.Random) -> str:
    """Return a word of two or three syllables."""
    parts = [[rng.choice(each) for each in _SOUNDS] for _ in range(rng.randint(2, 3))]
    return "".join("".join(part) for part in parts)


def _tenant(tenant_id: str, number: int) -> dict[str, Any]:
    return {"id": tenant_id, "name": f"tenant {number}", "weight": 1.0, "created_at": _EPOCH, "updated_at": _EPOCH}


def _adapter(owner: str, name: str, description: Description, at: datetime, routes: str | None) -> dict[str, Any]:
    return {
        "tenant_id": owner,
        "id": new_id("ad"),
        "name": name,
        "tags": description.tags,
        "description": description.text,
        "search_text": search_text(name, description),
        "last_version": 2,
        "latest_version": 2,
        "routes": routes,
        "created_at": at,
        "updated_at": at,
        "published_at": at,
    }


def _version(here: dict[str, Any], at: dict[str, Any], version: int, digest: str) -> dict[str, Any]:
    return {
        **here,
        **at,
        "version": version,
        "digest": digest,
        "status": "ready",
        "rank": 16,
        "size_bytes": 40 << 20,
        "config": b"{}" * 300,
        "base_model": "base",
        "base_digest": BASE_DIGEST,
    }
