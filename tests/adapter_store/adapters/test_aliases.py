from typing import Any

import pytest

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.adapters.routing import choose_target, sticky_point
from loragate.adapter_store.errors import Conflict, Invalid, NotFound, Unavailable
from loragate.v1 import engine_pb2


@pytest.fixture
async def two_versions(world: Any) -> Any:
    await world.publish("support", seed=1)
    await world.publish("support", seed=2)
    return world


async def test_an_alias_is_replaced_as_a_whole(two_versions: Any) -> None:
    async with two_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "live", [AliasTarget(2, 10), AliasTarget(1, 90)])
        assert (await adapters.aliases("support"))["live"] == (AliasTarget(1, 90), AliasTarget(2, 10))
        await adapters.set_alias("support", "live", [AliasTarget(2)])
        assert (await adapters.aliases("support"))["live"] == (AliasTarget(2),)
        assert (await adapters.route("support", alias="live")).pick().version == 2


@pytest.mark.parametrize(
    ("targets", "param"),
    [
        ([], "targets"),
        ([AliasTarget(1), AliasTarget(1)], "targets"),
        ([AliasTarget(1, 0)], "targets[0].weight"),
        ([AliasTarget(1), AliasTarget(2, -1)], "targets[1].weight"),
        ([AliasTarget(1, True)], "targets[0].weight"),
        ([AliasTarget(1, 10**7)], "targets[0].weight"),
        ([AliasTarget(version) for version in range(1, 18)], "targets"),
    ],
)
async def test_targets_are_checked(two_versions: Any, targets: list[AliasTarget], param: str) -> None:
    async with two_versions.adapters(write=True) as adapters:
        with pytest.raises(Invalid) as rejected:
            await adapters.set_alias("support", "live", targets)
    assert rejected.value.param == param


@pytest.mark.parametrize("version", [0, -1, 3, 2**31, 2**63, 10**30])
async def test_a_target_that_does_not_exist_is_named(two_versions: Any, version: int) -> None:
    async with two_versions.adapters(write=True) as adapters:
        with pytest.raises(NotFound) as rejected:
            await adapters.set_alias("support", "live", [AliasTarget(1), AliasTarget(version)])
        assert rejected.value.param == "targets[1].version"
        assert "live" not in await adapters.aliases("support")


async def test_a_failed_move_changes_nothing(two_versions: Any) -> None:
    with pytest.raises(NotFound):
        async with two_versions.adapters(write=True) as adapters:
            await adapters.set_alias("support", "default", [AliasTarget(9)])
    async with two_versions.adapters() as adapters:
        assert (await adapters.aliases("support"))["default"] == (AliasTarget(2),)


async def test_the_draw_chooses_by_weight(two_versions: Any) -> None:
    async with two_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "live", [AliasTarget(1, 90), AliasTarget(2, 10)])
        for draw, version in ((0.0, 1), (0.899, 1), (0.901, 2), (0.999, 2)):
            assert (await adapters.route("support", alias="live")).pick(draw=draw).version == version
        drawn = {(await adapters.route("support", alias="live")).pick().version for _ in range(200)}
    assert drawn == {1, 2}  # missed once in 10⁹


async def test_a_sticky_key_keeps_its_target(two_versions: Any) -> None:
    async with two_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "live", [AliasTarget(1), AliasTarget(2)])
        versions = set()
        for user in ("ann", "bob", "cy", "dee", "eve", "fay", "gus", "hal"):
            answers = {(await adapters.route("support", alias="live")).pick(sticky_key=user).version for _ in range(3)}
            assert len(answers) == 1
            versions |= answers


def test_sticky_points_are_even_and_differ_between_adapters() -> None:
    points = [sticky_point("ad_1", "live", f"user {number}") for number in range(4000)]
    assert sum(point < 0.1 for point in points) == pytest.approx(400, abs=100)
    elsewhere = [sticky_point("ad_2", "live", f"user {number}") for number in range(4000)]
    both = sum(first < 0.1 and second < 0.1 for first, second in zip(points, elsewhere, strict=True))
    assert both == pytest.approx(40, abs=35)


def test_targets_get_exactly_their_share() -> None:
    weights = [1, 5, 4]
    counts = [0, 0, 0]
    for step in range(1000):
        counts[choose_target(weights, (step + 0.5) / 1000)[0]] += 1
    assert counts == [100, 500, 400]
    assert choose_target(weights, 1.0)[0] == 2


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("support", {"version": 3}),
        ("support", {"version": 2**80}),
        ("support", {"alias": "unknown"}),
        ("support", {"alias": "\ud800"}),
        ("nothing", {}),
        ("\ud800\0", {}),
        ("x" * 10_000, {}),
    ],
)
async def test_anything_missing_is_the_same_404(two_versions: Any, name: str, wanted: dict[str, Any]) -> None:
    async with two_versions.adapters() as adapters:
        with pytest.raises(NotFound) as rejected:
            (await adapters.route(name, **wanted)).pick()
    assert (rejected.value.status, rejected.value.code) == (404, "model_not_found")
    assert len(rejected.value.message) < 200


async def test_an_adapter_of_another_base_is_not_served(two_versions: Any, manifest: engine_pb2.Manifest) -> None:
    manifest.base_digest = "sha256:" + "c" * 64
    await two_versions.store.publish_manifest(manifest)
    async with two_versions.adapters() as adapters:
        for wanted in ({}, {"version": 1}):
            with pytest.raises(Conflict, match="a base model other than the one served"):
                (await adapters.route("support", **wanted)).pick()
    assert (await two_versions.publish("support", seed=3)).version == 3
    async with two_versions.adapters() as adapters:
        assert (await adapters.route("support")).pick().version == 3


async def test_without_a_base_nothing_is_served(two_versions: Any) -> None:
    from sqlalchemy import delete

    from loragate.adapter_store.tables.installation import EngineManifestRow

    async with two_versions.store._database.operator(write=True) as session:
        await session.execute(delete(EngineManifestRow))
    async with two_versions.adapters() as adapters:
        with pytest.raises(Unavailable):
            (await adapters.route("support")).pick()


async def test_a_deleted_alias_resolves_to_nothing_and_leaves_its_versions(two_versions: Any) -> None:
    async with two_versions.adapters(write=True) as adapters:
        await adapters.set_alias("support", "live", [AliasTarget(1)])
        await adapters.set_alias("support", "live", [AliasTarget(1), AliasTarget(2)])
        await adapters.delete_alias("support", "live")
        assert set(await adapters.aliases("support")) == {"default"}
        for act in (adapters.route("support", alias="live"), adapters.rollback("support", "live")):
            with pytest.raises(NotFound):
                await act
        with pytest.raises(NotFound):
            await adapters.delete_alias("support", "live")
        assert (await adapters.version("support", 1)).status == "ready"
        await adapters.set_alias("support", "live", [AliasTarget(2)])
        with pytest.raises(Conflict, match="nothing to roll back to"):
            await adapters.rollback("support", "live")
    async with two_versions.store.admin() as admin:
        (deleted,) = [event for event in await admin.audit.list() if event.action == "alias.delete"]
    targets = [{"version": 1, "weight": 1}, {"version": 2, "weight": 1}]
    assert (deleted.target, deleted.before, deleted.after) == ("alias:support@live", {"targets": targets}, None)


async def test_the_default_alias_cannot_be_deleted(two_versions: Any) -> None:
    async with two_versions.adapters(write=True) as adapters:
        with pytest.raises(Conflict) as rejected:
            await adapters.delete_alias("support", "default")
        assert (rejected.value.code, rejected.value.param) == ("default_alias", "alias")
        assert (await adapters.route("support")).pick().version == 2
    async with two_versions.adapters(two_versions.other, write=True) as adapters:
        with pytest.raises(NotFound):
            await adapters.delete_alias("support", "default")
