"""The operator's view of contents: names from all tenants, of versions that are not deleted."""

from typing import Any

from loragate.adapter_store.publishing.all_published import VersionName


async def test_names_of_contents(world: Any) -> None:
    one = await world.publish("support", seed=1)
    again = await world.publish("helpdesk", seed=1)
    other = await world.publish("sales", seed=2)
    assert one.digest == again.digest != other.digest
    acme = world.acme.id
    async with world.store.admin() as admin:
        names = await admin.published.names(
            [(acme, one.digest), (acme, other.digest), (acme, "sha256:none"), (world.other.id, one.digest)]
        )
    assert names == {
        (acme, one.digest): (VersionName("helpdesk", 1), VersionName("support", 1)),
        (acme, other.digest): (VersionName("sales", 1),),
    }


async def test_deleted_versions_have_no_name(world: Any) -> None:
    version = await world.publish("support")
    async with world.adapters(write=True) as adapters:
        await adapters.delete("support")
    async with world.store.admin() as admin:
        assert await admin.published.names([(world.acme.id, version.digest)]) == {}
        assert await admin.published.names([]) == {}


async def test_more_contents_than_one_query_returns(world: Any) -> None:
    version = await world.publish("support")
    wanted = [(world.acme.id, f"sha256:{number}") for number in range(1200)] + [(world.acme.id, version.digest)]
    async with world.store.admin() as admin:
        assert list(await admin.published.names(wanted)) == [(world.acme.id, version.digest)]
