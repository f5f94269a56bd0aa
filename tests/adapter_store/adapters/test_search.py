"""Tags, descriptions and searching for them, on both databases, for a tenant and for the operator."""

from typing import Any

import pytest
from sqlalchemy import delete, text, update
from thinned import thinned

from loragate.adapter_store.adapters.adapter import AdapterStatus
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.adapters.search import Walk
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import downgrade, upgrade
from loragate.adapter_store.errors import Invalid
from loragate.adapter_store.tables.adapters import AdapterRow

FOUND = {
    "port-bot": ["support-bot-v2", "support-bot"],
    "PORT-Bot": ["support-bot-v2", "support-bot"],
    "bot-v2": ["support-bot-v2"],
    "answers": ["support-bot"],
    "100%": ["support-bot"],
    "100_": [],
    "%%%": [],
    "s_n": ["support-bot"],
    "t_o": [],
    '"no"': ["support-bot-v2"],
    "no AND left": [],
    'no" AND left': ["support-bot-v2"],
    "ÄPFEL": ["support-bot"],
    "/": [],
    "\\": [],
    "'": [],
    "of all": [],  # there is a line break between them
    "questions now": [],
    "nothing like it": [],
    "": ["poet", "support-bot-v2", "support-bot"],
    "   ": ["poet", "support-bot-v2", "support-bot"],
    "p": ["poet", "support-bot-v2", "support-bot"],
    "po": ["poet"],
    "pp": [],  # not where a word begins
    "v2": ["support-bot-v2"],
    "Ä": ["support-bot"],
    "%": ["support-bot"],
    "_": ["support-bot"],
    '"': ["support-bot-v2"],
}
"""What searches find, the newest first."""


async def _names(world: Any, wanted: AdapterFilter, who: str, **page: Any) -> list[str]:
    """Return what a tenant finds among its own adapters, or the operator among all."""
    if who == "tenant":
        async with world.adapters() as adapters:
            return [adapter.name for adapter in await adapters.list(wanted, **page)]
    async with world.store.admin() as admin:
        return [adapter.name for adapter in await admin.published.list(wanted, **page)]


@pytest.fixture
async def library(world: Any) -> Any:
    """Adapters that resemble each other; the newest last."""
    await world.publish("support-bot", tags=["prod", "Team: Äpfel"], description="Answers 100% of\nall questions_now.")
    await world.publish("support-bot-v2", tags=["prod"], description='He said "no" AND left')
    await world.publish("poet")
    await world.publish("gone", description="answers nothing")
    async with world.adapters(write=True) as adapters:
        await adapters.delete("gone")
    return world


@pytest.mark.parametrize("who", ["tenant", "operator"])
async def test_search(library: Any, who: str) -> None:
    assert {search: await _names(library, AdapterFilter(search), who) for search in FOUND} == FOUND


@pytest.mark.parametrize("who", ["tenant", "operator"])
async def test_tags(library: Any, who: str) -> None:
    assert await _names(library, AdapterFilter(tags=("prod",)), who) == ["support-bot-v2", "support-bot"]
    assert await _names(library, AdapterFilter(tags=("prod", "Team: Äpfel")), who) == ["support-bot"]
    assert await _names(library, AdapterFilter(tags=("PROD",)), who) == []
    assert await _names(library, AdapterFilter("v2", ("prod",)), who) == ["support-bot-v2"]


@pytest.mark.parametrize("who", ["tenant", "operator"])
async def test_states(library: Any, who: str) -> None:
    async with library.adapters(write=True) as adapters:
        await adapters.update("poet", enabled=False)
    found = {status: await _names(library, AdapterFilter(status=status), who) for status in AdapterStatus}
    assert found == {
        AdapterStatus.READY: ["support-bot-v2", "support-bot"],
        AdapterStatus.DISABLED: ["poet"],
        AdapterStatus.DELETED: ["gone"],
    }
    deleted = AdapterFilter("answers", status=AdapterStatus.DELETED)
    assert await _names(library, deleted, who) == ["gone"]


async def test_given_descriptions_and_tags_are_replaced(library: Any) -> None:
    async with library.adapters(write=True) as adapters:
        changed = await adapters.update("support-bot", tags=["b", "a", "b"])
        assert changed.description.tags == ("a", "b")
        assert changed.description.text.startswith("Answers")
        changed = await adapters.update("support-bot", description="")
        assert (changed.description.tags, changed.description.text) == (("a", "b"), "")
    for who in ("tenant", "operator"):
        assert await _names(library, AdapterFilter("answers"), who) == []
        assert await _names(library, AdapterFilter("prod"), who) == ["support-bot-v2"]
        assert await _names(library, AdapterFilter(tags=("a", "b")), who) == ["support-bot"]


async def test_another_version_changes_only_the_given_fields(library: Any) -> None:
    await library.publish("support-bot", seed=1)
    async with library.adapters() as adapters:
        assert (await adapters.get("support-bot")).description.tags == ("Team: Äpfel", "prod")
    await library.publish("support-bot", seed=2, tags=[])
    async with library.adapters() as adapters:
        assert (await adapters.get("support-bot")).description.tags == ()


async def test_the_audit_log_records_descriptions_and_tags(library: Any) -> None:
    async with library.adapters(write=True) as adapters:
        await adapters.update("poet", tags=["x"])
        await adapters.update("poet", tags=["x"])
    async with library.store.admin() as admin:
        events = (await admin.audit.list(action="adapter.update")).items
    assert [event.target for event in events].count("adapter:poet") == 1
    assert events[0].before == {"description": {"tags": [], "text": ""}}
    assert events[0].after == {"description": {"tags": ["x"], "text": ""}}


async def test_the_operator_sees_all_tenants_or_one(library: Any) -> None:
    await library.publish("support-elsewhere", tenant=library.other)
    wanted = AdapterFilter("support")
    assert await _names(library, wanted, "operator") == ["support-elsewhere", "support-bot-v2", "support-bot"]
    assert await _names(library, wanted, "operator", tenant_id=library.other.id) == ["support-elsewhere"]
    assert await _names(library, wanted, "operator", tenant_id="tn_nobody") == []
    assert await _names(library, wanted, "operator", tenant_id="\0") == []
    assert await _names(library, wanted, "tenant") == ["support-bot-v2", "support-bot"]
    async with library.store.admin(within=library.acme.id) as admin:
        assert [adapter.name for adapter in await admin.published.list()] == ["poet", "support-bot-v2", "support-bot"]
        assert [adapter.name for adapter in await admin.published.list(AdapterFilter("elsewhere"))] == []
        assert [adapter.name for adapter in await admin.published.list(tenant_id=library.other.id)] == []


@pytest.mark.parametrize(
    "walk",
    thinned(
        [Walk(2000, 6000, 24), Walk(1, 1, 12), Walk(3, 12, often=1), Walk(3, 4, often=1), Walk(4, 2000, often=2)],
        fast={Walk(3, 4, often=1)},
    ),
    ids=str,
)
@pytest.mark.parametrize("tags", [(), ("bot",)])
async def test_pages_stay_consistent_while_others_are_added_and_removed(
    world: Any, monkeypatch: pytest.MonkeyPatch, tags: tuple[str, ...], walk: Walk
) -> None:
    """However many rows are scanned before the index is used."""
    monkeypatch.setattr("loragate.adapter_store.adapters.search._walk", lambda *_: walk)
    for number in range(6):
        await world.publish(f"bot-{number}", tags=["bot"])
        await world.publish(f"bot-untagged-{number}" if tags else f"other-{number}")
    wanted, seen, after = AdapterFilter("bot", tags), list[str](), None
    async with world.store.admin() as admin:
        page = await admin.published.list(wanted, limit=2)
    while True:
        seen += [adapter.name for adapter in page]
        if not page.has_more:
            break
        after = page.items[-1].id
        await world.publish(f"bot-new-{len(seen)}", tags=["bot"])
        async with world.adapters(write=True) as adapters:
            await adapters.delete(seen[-1])  # what the cursor points at
        async with world.store.admin() as admin, world.adapters() as own:
            page = await admin.published.list(wanted, after=after, limit=2)
            assert page == await own.list(wanted, after=after, limit=2)
    assert seen == [f"bot-{number}" for number in reversed(range(6))]


async def test_descriptions_and_tags_are_bounded(world: Any) -> None:
    for said, param in (
        ({"tags": ["a,b"]}, "tags"),
        ({"tags": [" a"]}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["x" * 65]}, "tags"),
        ({"tags": ["a\0b"]}, "tags"),
        ({"tags": [f"t{number}" for number in range(33)]}, "tags"),
        ({"description": "x" * 2049}, "description"),
        ({"description": "ä" * 1025}, "description"),
        ({"description": "a\0b"}, "description"),
        ({"description": "\ud800"}, "description"),
    ):
        with pytest.raises(Invalid) as rejected:
            await world.publish("poet", **said)
        assert rejected.value.param == param, said
        assert await _names(world, AdapterFilter(), "tenant") == [], said


async def test_queries_are_bounded(world: Any) -> None:
    for search in ("x" * 101, "a\nb", "a\0b"):
        with pytest.raises(Invalid) as rejected:
            await _names(world, AdapterFilter(search), "operator")
        assert rejected.value.param == "search", search


@pytest.mark.parametrize("tags", [("a,b",), ("",), tuple("abcdefghi")])
def test_queried_tags_are_bounded(tags: tuple[str, ...]) -> None:
    with pytest.raises(Invalid) as rejected:
        AdapterFilter(tags=tags)
    assert rejected.value.param == "tag"


@pytest.mark.migrates
async def test_existing_adapters_are_found_after_the_migration(library: Any, database_url: str) -> None:
    await downgrade(database_url, "0007")
    await upgrade(database_url)
    for who in ("tenant", "operator"):
        assert await _names(library, AdapterFilter("port-b"), who) == ["support-bot-v2", "support-bot"]
        assert await _names(library, AdapterFilter("v2"), who) == ["support-bot-v2"]
        assert await _names(library, AdapterFilter("answers"), who) == []


async def test_sqlites_index_follows_the_rows(library: Any, database_url: str, backend: str) -> None:
    """However the rows are changed."""
    if backend != "sqlite":
        pytest.skip("about SQLite")
    database = Database(database_url)
    async with database.operator(write=True) as session:
        await session.execute(text("DELETE FROM alias_targets"))
        await session.execute(text("DELETE FROM adapter_aliases"))
        await session.execute(text("DELETE FROM adapter_versions"))
        await session.execute(text("DELETE FROM adapter_tags"))
        await session.execute(update(AdapterRow).where(AdapterRow.name == "poet").values(search_text="by hand"))
        await session.execute(delete(AdapterRow).where(AdapterRow.name == "support-bot"))
    async with database.operator() as session:
        found = (await session.execute(text("SELECT text FROM adapter_search ORDER BY rowid"))).scalars().all()
        blob_files = (
            (await session.execute(text("SELECT search_text FROM adapters ORDER BY created_at"))).scalars().all()
        )
    assert found == blob_files
    await database.close()
    assert await _names(library, AdapterFilter("by hand"), "operator") == ["poet"]
    assert await _names(library, AdapterFilter("support"), "operator") == ["support-bot-v2"]
