"""Damaged, interrupted and hostile backups are rejected before anything is written."""

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from loragate.adapter_store.backup.archive import open_archive
from loragate.adapter_store.backup.manifest import NAME
from loragate.adapter_store.errors import Invalid, NotFound
from tests.adapter_store.backup.places import Place, fill

NOW = timedelta(0)
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"], indirect=True)


@on_sqlite
@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_a_damaged_backup_is_rejected_by_the_name_of_the_file(
    world: Any, elsewhere: Place, take_backup: Any, name: str, tmp_path: Path
) -> None:
    await fill(world)
    backup = await take_backup(name)
    with open_archive(backup) as archive:
        damaged = next(file.name for file in archive.manifest.files if file.name.endswith(".safetensors"))
        content = archive.read(damaged)
    if backup.is_dir():
        (backup / damaged).write_bytes(content[:-1] + b"!")
    else:
        whole = backup.read_bytes()
        at = whole.index(content) + len(content) - 1
        backup.write_bytes(whole[:at] + b"!" + whole[at + 1 :])
    with pytest.raises(Invalid, match=f"damaged: {damaged} has other bytes"):
        await elsewhere.restore(backup, keep_keys=True)
    assert not (tmp_path / "restored-blobs").exists(), "nothing is written before all is verified"
    if backup.is_dir():
        (backup / damaged).unlink()
        with pytest.raises(Invalid, match=f"damaged: {damaged} cannot be read"):
            await elsewhere.restore(backup, keep_keys=True)


@on_sqlite
@pytest.mark.parametrize("name", ["backup", "backup.tar"])
async def test_an_interrupted_backup_is_rejected(
    world: Any, elsewhere: Place, take_backup: Any, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await fill(world)

    def power_cut(*_: Any) -> None:
        raise OSError("cut")

    monkeypatch.setattr("loragate.adapter_store.backup.archive.ArchiveWriter.finish", power_cut)
    with pytest.raises(OSError, match="cut"):
        await take_backup(name)
    left = tmp_path / (name if name == "backup" else f"{name}.partial")
    with pytest.raises(Invalid, match="interrupted"):
        await elsewhere.restore(left)
    with pytest.raises(NotFound):
        await elsewhere.restore(tmp_path / "none")
    assert not (await world.store.sweep(NOW, NOW)).held, "a backup that fails releases the sweep"


@on_sqlite
async def test_a_cut_tar_file_is_rejected(world: Any, elsewhere: Place, take_backup: Any) -> None:
    await fill(world)
    backup = await take_backup("backup.tar")
    with backup.open("r+b") as file:
        file.truncate(backup.stat().st_size // 2)
    with pytest.raises(Invalid, match=r"interrupted|no backup"):
        await elsewhere.restore(backup)


@on_sqlite
async def test_names_in_a_manifest_lead_nowhere_else(
    world: Any, elsewhere: Place, take_backup: Any, tmp_path: Path
) -> None:
    backup = await take_backup()
    outside = tmp_path / "outside"
    outside.write_bytes(b"x")
    manifest = orjson.loads((backup / NAME).read_bytes())
    for name in ("../outside", "blobs/../../outside", "usage/../outside", str(outside)):
        file = {"name": name, "size": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
        (backup / NAME).write_bytes(orjson.dumps(manifest | {"files": [*manifest["files"], file]}))
        with pytest.raises(Invalid, match="a backup has no file"):
            await elsewhere.restore(backup, keep_keys=True)


async def test_bytes_that_are_gone_are_listed(world: Any, lost: Place, take_backup: Any) -> None:
    published = await world.publish("support", seed=1)
    await world.store.blobs.of(world.acme.id).remove(published.digest)
    with open_archive(await take_backup()) as archive:
        missing = archive.manifest.missing
    folder = f"blobs/{world.acme.id}/{published.digest.removeprefix('sha256:')}"
    assert set(missing) == {f"{folder}/adapter_config.json", f"{folder}/adapter_model.safetensors"}
