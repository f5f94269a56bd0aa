"""Files in the engine's disk tier are verified whenever they are read, and fetched again if they are damaged."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from loragate.engine.adapters.files import AdapterFiles, AdapterUnavailable
from loragate.engine.adapters.weights.load import CONFIG_FILE, TENSORS_FILE, load_adapter, read_files
from loragate.engine.layers.patch import HostAdapter
from loragate.engine.local import LocalEngine
from loragate.engine.sequence.request import AdapterKey
from loragate.v1 import engine_pb2 as pb


class Peer:
    """Has one adapter's files and counts the requests for them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.broken = folder, 0, False

    async def fetch(self, key: AdapterKey) -> AsyncIterator[pb.AdapterPart]:
        self.asked += 1
        tensors = (self.folder / TENSORS_FILE).read_bytes()
        yield pb.AdapterPart(config_json=(self.folder / CONFIG_FILE).read_bytes())
        yield pb.AdapterPart(tensors=tensors[:-1])
        yield pb.AdapterPart(tensors=bytes([tensors[-1] ^ self.broken]), last=True)


class Disk:
    """The disk tier with one adapter, `a`, which `peer` has."""

    def __init__(self, engine: LocalEngine, folder: Path, cache: Path) -> None:
        self.peer, self.cache = Peer(folder), cache
        self.key = AdapterKey("tn_1", read_files(folder, engine.loaded.layout).digest)
        base, layout = engine.loaded.base, engine.loaded.layout
        self.files = AdapterFiles(
            cache,
            layout,
            lambda path, reading: load_adapter(path, reading.plan, base, layout),
            lambda key: [self.peer],
            budget=1 << 30,
        )

    def change(self, file: str, change: Callable[[bytes], bytes]) -> None:
        (path,) = self.cache.glob(f"*/*/{file}")
        path.write_bytes(change(path.read_bytes()))

    async def load(self) -> list[torch.Tensor]:
        host: HostAdapter = await self.files.load(self.key)
        return [tensor.clone() for patch in host.patches.values() for tensor in patch.tensors]


@pytest.fixture
def disk(start: Any, tiny: Any, tmp_path: Path) -> Disk:
    return Disk(start(), tiny.adapters["a"], tmp_path / "files")


def _flip(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES = {
    "a bit of a tensor": (TENSORS_FILE, _flip),
    "cut short": (TENSORS_FILE, lambda content: content[:-4]),
    "another alpha": (CONFIG_FILE, lambda content: content.replace(b'"lora_alpha": ', b'"lora_alpha": 1')),
    "no config": (CONFIG_FILE, lambda content: b""),
}


async def test_files_are_fetched_once(disk: Disk) -> None:
    first, second = await disk.load(), await disk.load()
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))
    assert disk.peer.asked == 1


@pytest.mark.parametrize("what", DAMAGES)
async def test_damaged_files_are_never_loaded_but_fetched_again(disk: Disk, what: str) -> None:
    good = await disk.load()
    disk.change(*DAMAGES[what])
    again = await disk.load()
    assert all(torch.equal(*pair) for pair in zip(good, again, strict=True))
    assert disk.peer.asked == 2
    await disk.load()
    assert disk.peer.asked == 2


async def test_files_that_cannot_be_fetched_whole_are_rejected_and_not_stored(disk: Disk) -> None:
    await disk.load()
    disk.change(TENSORS_FILE, _flip)
    disk.peer.broken = True
    for load in (disk.files.load, disk.files.load, disk.files.fetch):
        with pytest.raises(AdapterUnavailable, match="digest"):
            await load(disk.key)
        assert disk.files.keys() == []
        assert not list(disk.cache.glob("*/*/*"))
    disk.peer.broken = False
    assert await disk.load()
