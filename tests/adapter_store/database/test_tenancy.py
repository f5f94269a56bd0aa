"""No repository can reach another tenant's rows, and none that is added later can either."""

import ast
import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, get_type_hints

import pytest
from sqlalchemy import and_, delete, event, func, insert, or_, select, text, update
from sqlalchemy.orm import aliased

from loragate.adapter_store import scopes
from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.adapters.filter import AdapterFilter
from loragate.adapter_store.adapters.repository import AdapterRepository
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.scoped_statements import TENANT_PARAM, UnscopedStatement, scoped
from loragate.adapter_store.errors import NotFound
from loragate.adapter_store.tables.adapters import AdapterRow, AdapterVersionRow
from loragate.adapter_store.tables.base import Base, TenantOwned

ADAPTERS, VERSIONS = AdapterRow.__table__, AdapterVersionRow.__table__
OTHERS, MINE = ADAPTERS.alias("others"), ADAPTERS.c.tenant_id == TENANT_PARAM


@pytest.fixture
async def database(database_url: str, world: Any) -> Any:
    opened = Database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def statements(world: Any) -> Iterator[list[tuple[str, Any]]]:
    """Every statement that the store sends, with its parameters."""
    engine = world.store._database._engine.sync_engine
    sent: list[tuple[str, Any]] = []

    def record(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        sent.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", record)
    yield sent
    event.remove(engine, "before_cursor_execute", record)


def test_every_table_with_a_tenant_is_marked() -> None:
    marked = {mapper.local_table for mapper in Base.registry.mappers if issubclass(mapper.class_, TenantOwned)}
    assert marked == {table for table in Base.metadata.tables.values() if "tenant_id" in table.columns}


def test_no_method_of_a_tenants_repository_takes_a_tenant() -> None:
    repositories = get_type_hints(scopes.TenantScope).values()
    assert AdapterRepository in repositories
    for repository in repositories:
        for name, method in inspect.getmembers(repository, inspect.isfunction):
            assert not any("tenant" in parameter for parameter in inspect.signature(method).parameters), name
        mentioned = {node.attr for node in ast.walk(_source(repository)) if isinstance(node, ast.Attribute)}
        assert "tenant_id" not in mentioned


def _source(kind: type) -> ast.AST:
    return ast.parse(inspect.getsource(kind))


async def test_every_statement_of_every_method_names_the_tenant(world: Any, statements: list[tuple[str, Any]]) -> None:
    called = set()

    async def call(name: str, *arguments: Any, **options: Any) -> None:
        async with world.adapters(write=True) as adapters:
            await getattr(adapters, name)(*arguments, **options)
        called.add(name)

    for seed in range(3):
        await world.publish("support", seed=seed)
    await call("set_alias", "support", "canary", [AliasTarget(2, 1), AliasTarget(3, 9)])
    async with world.adapters() as adapters:
        only = await adapters.get("support")
        latest = await adapters.version("support", 3)
    await call("list", after=only.id)
    await call("get", "support")
    await call("versions", "support", after=3)
    await call("version", "support", 1)
    await call("record_export", latest)
    await call("aliases", "support")
    await call("route", "support", alias="canary")
    await call("route", "support", version=1)
    await call("update", "support", limits={"max_concurrency": 1}, tags=["a"], description="about it", enabled=False)
    await call("list", AdapterFilter("about", ("a",)))
    await call("promote", "support", "canary", version=2)
    await call("promote", "support", "canary", from_alias="default")
    await call("rollback", "support", "canary")
    await call("delete_alias", "support", "canary")
    await call("enable_version", "support", 1, False)
    await call("delete_version", "support", 1)
    await call("restore_version", "support", 1)
    await call("delete", "support")
    await call("restore", "support")
    await _reject(world)
    public = {name for name, _ in inspect.getmembers(AdapterRepository, inspect.isfunction) if name[0] != "_"}
    assert called == public

    owned = [table.name for table in Base.metadata.tables.values() if "tenant_id" in table.columns]
    touching = [(sql, parameters) for sql, parameters in statements if any(name in sql for name in owned)]
    assert len(touching) > 30
    for sql, parameters in touching:
        assert "tenant_id" in sql
        assert world.acme.id in _flat(parameters), sql
        assert world.other.id not in _flat(parameters)


async def _reject(world: Any) -> None:
    async def dies(tenant_id: str, staged: Any) -> None:
        raise RuntimeError

    upload = world.make_upload(seed=9)
    with pytest.raises(RuntimeError):
        await world.send("support", upload.config, upload.file(), probe=dies)
    async with world.store.tenant(world.acme.id, write=True) as scope:
        await scope.publisher.reject_abandoned(timedelta(0))


def _flat(parameters: Any) -> list[Any]:
    return list(parameters.values()) if isinstance(parameters, dict) else list(parameters)


async def test_one_tenants_resources_do_not_exist_for_another(world: Any) -> None:
    await world.publish("support")
    async with world.adapters(world.other, write=True) as adapters:
        assert len(await adapters.list()) == 0
        for attempt in (
            adapters.get("support"),
            adapters.versions("support"),
            adapters.version("support", 1),
            adapters.delete("support"),
            adapters.delete_version("support", 1),
            adapters.set_alias("support", "x", [AliasTarget(1)]),
            adapters.route("support"),
            adapters.route("support", version=1),
        ):
            with pytest.raises(NotFound):
                await attempt
    async with world.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 1


async def test_the_orm_is_filtered_wherever_an_entity_appears(world: Any, database: Database) -> None:
    await world.publish("support")
    await world.publish("support", tenant=world.other)
    other_name = aliased(AdapterRow)
    nested = select(func.count()).select_from(select(AdapterRow.id).subquery())
    joined = select(func.count()).select_from(AdapterRow).join(other_name, other_name.name == AdapterRow.name)
    exists = (
        select(func.count())
        .select_from(AdapterVersionRow)
        .where(AdapterVersionRow.adapter_id.in_(select(AdapterRow.id)))
    )
    for tenant in (world.acme, world.other, world.acme):
        async with database.tenant(tenant.id) as session:
            for query in (nested, joined, exists):
                assert await session.scalar(query) == 1
            assert (await session.scalars(select(AdapterRow.tenant_id))).all() == [tenant.id]


async def test_bulk_changes_reach_own_rows_only(world: Any, database: Database) -> None:
    await world.publish("support")
    await world.publish("support", tenant=world.other)
    async with database.tenant(world.acme.id, write=True) as session:
        await session.execute(update(AdapterRow).values(name="renamed"))
    async with database.operator() as session:
        rows = (await session.execute(select(AdapterRow.tenant_id, AdapterRow.name))).all()
    assert set(rows) == {(world.acme.id, "renamed"), (world.other.id, "support")}


@pytest.mark.parametrize(
    "statement",
    [
        select(ADAPTERS),
        select(ADAPTERS.c.id).where(ADAPTERS.c.name == "x"),
        update(ADAPTERS).values(name="x"),
        delete(ADAPTERS),
        text("SELECT * FROM adapters"),
        text("DELETE FROM adapters WHERE name = 'x'"),
        text("SELECT a.id FROM adapters AS a JOIN adapters AS b ON a.tenant_id = b.tenant_id"),
        select(ADAPTERS.c.id).where(ADAPTERS.c.tenant_id == "tn_somebody"),
        insert(ADAPTERS).values(tenant_id="tn_somebody", id="ad_x", name="x", last_version=0),
        text("INSERT INTO adapters (tenant_id, id) VALUES ('tn_somebody', 'ad_x')"),
    ],
)
async def test_statements_that_the_orm_does_not_filter_are_rejected(
    world: Any, database: Database, statement: Any
) -> None:
    async with database.tenant(world.acme.id, write=True) as session:
        connection = await session.connection()
        with pytest.raises(UnscopedStatement):
            await connection.execute(statement)


def _versions(*held: Any) -> Any:
    return select(func.max(VERSIONS.c.version)).where(VERSIONS.c.adapter_id == ADAPTERS.c.id, *held)


THEIRS, ALL_THEIRS = VERSIONS.c.tenant_id == TENANT_PARAM, select(ADAPTERS.c.id)
FORGETFUL = {
    "alone": select(ADAPTERS.c.id),
    "by another's name": select(OTHERS.c.id).where(MINE),
    "joined": select(ADAPTERS.c.id).join(OTHERS, OTHERS.c.name == ADAPTERS.c.name).where(MINE),
    "in a column": select(ADAPTERS.c.id, _versions().scalar_subquery()).where(MINE),
    "in one of two columns": select(_versions(THEIRS).scalar_subquery(), _versions().scalar_subquery())
    .select_from(ADAPTERS)
    .where(MINE),
    "around a column": select(ADAPTERS.c.id, _versions(THEIRS).scalar_subquery()),
    "in a condition": select(ADAPTERS.c.id).where(MINE, _versions().exists()),
    "in a list": select(ADAPTERS.c.id).where(MINE, ADAPTERS.c.id.in_(select(OTHERS.c.id))),
    "in a subquery": select(ALL_THEIRS.subquery().c.id),
    "in a common table": select(ALL_THEIRS.cte("all_of_them").c.id),
    "in a union": select(ALL_THEIRS.where(MINE).union_all(ALL_THEIRS).subquery().c.id),
    "in one of two conditions": select(ADAPTERS.c.id).where(or_(MINE, ADAPTERS.c.name == "x")),
    "in what must not be": select(ADAPTERS.c.id).where(~and_(MINE, ADAPTERS.c.name == "x")),
    "where it is only selected": select(ADAPTERS.c.id, MINE),
    "of another tenant": select(ADAPTERS.c.id).where(ADAPTERS.c.tenant_id == "tn_somebody"),
    "of others": select(ADAPTERS.c.id).where(ADAPTERS.c.tenant_id != TENANT_PARAM),
}


@pytest.mark.parametrize("statement", FORGETFUL.values(), ids=FORGETFUL)
def test_a_core_statement_cannot_be_built_without_its_tenant(statement: Any) -> None:
    with pytest.raises(UnscopedStatement, match="all tenants"):
        scoped(statement)


async def test_a_core_statement_runs_only_if_it_was_checked(world: Any, database: Database) -> None:
    await world.publish("support")
    await world.publish("support", tenant=world.other)
    whole = select(ADAPTERS.c.tenant_id, _versions(THEIRS).scalar_subquery()).where(MINE)
    async with database.tenant(world.acme.id, write=True) as session:
        changes = (update(ADAPTERS).where(MINE).values(name="x"), delete(ADAPTERS).where(MINE))
        for statement in (whole, whole.union_all(whole), select(whole.subquery()), *changes):
            with pytest.raises(UnscopedStatement, match="`scoped`"):
                await session.execute(statement, {TENANT_PARAM.key: world.acme.id})
        found = (await session.execute(scoped(whole), {TENANT_PARAM.key: world.acme.id})).all()
        assert found == [(world.acme.id, 1)]
        with pytest.raises(UnscopedStatement, match="another tenant"):
            await session.execute(scoped(whole), {TENANT_PARAM.key: world.other.id})


async def test_raw_driver_sql_is_rejected(world: Any, database: Database) -> None:
    with pytest.raises(UnscopedStatement):
        async with database.tenant(world.acme.id) as session:
            await (await session.connection()).exec_driver_sql("SELECT 1")


async def test_an_insert_cannot_name_another_tenant(world: Any, database: Database) -> None:
    async with database.tenant(world.acme.id, write=True) as session:
        await session.execute(
            insert(AdapterRow).values(
                tenant_id=world.other.id,
                id="ad_x",
                name="x",
                last_version=0,
                created_at=world.acme.created_at,
                updated_at=world.acme.created_at,
            )
        )
    async with database.operator() as session:
        assert await session.scalar(select(AdapterRow.tenant_id)) == world.acme.id


async def test_a_reading_scope_cannot_write(world: Any) -> None:
    await world.publish("support")
    with pytest.raises(UnscopedStatement, match="write=True"):
        async with world.adapters() as adapters:
            await adapters.delete("support")
    with pytest.raises(UnscopedStatement, match="write=True"):
        async with world.store.admin() as admin:
            await admin.tenants.create("third")


async def test_a_returned_connection_has_no_tenant(world: Any, database: Database) -> None:
    await world.publish("support")
    for _ in range(3):
        async with database.tenant(world.other.id) as session:
            assert await session.scalar(select(func.count()).select_from(AdapterRow)) == 0
        async with database.operator() as session:
            assert await session.scalar(select(func.count()).select_from(AdapterRow)) == 1


async def test_an_invalid_id_has_no_scope(store: Any) -> None:
    with pytest.raises(NotFound):
        async with store.tenant("../etc"):
            pass


async def test_the_operator_sees_tenant_names_also_of_deleted_ones(world: Any) -> None:
    acme, other = world.acme, world.other
    async with world.store.admin(write=True) as admin:
        await admin.tenants.delete(other.id)
        assert await admin.tenants.names([acme.id, other.id, "tn_nobody"]) == {acme.id: "acme", other.id: "other"}
    async with world.store.admin(within=acme.id) as admin:
        assert await admin.tenants.names([acme.id, other.id]) == {acme.id: "acme"}
