"""A gateway reclaims unused data by itself."""

import asyncio
import io
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from loragate.adapter_store.errors import Unavailable
from loragate.adapter_store.store import Store
from loragate.gateway.background.sweep import run_sweep_loop
from tests.gateway.running_gateway import Gateway


async def test_interrupted_uploads_are_removed_and_recent_ones_kept(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gateway.services is not None
    store = gateway.services.store
    pieces = store.blobs.of(gateway.tenant_id).pieces
    for name in ("part_old", "part_new"):
        await pieces.put(name, io.BytesIO(b"x"))
    os.utime(Path(urlsplit(gateway.config.blob_url).path) / gateway.tenant_id / "pieces" / "part_old", (0, 0))
    swept, sweep, calls = asyncio.Event(), store.sweep, 0

    async def reporting(self: Store, *, listing: bool) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("the database is away")
        report = await sweep(listing=listing)
        swept.set()
        return report

    monkeypatch.setattr(Store, "sweep", reporting)
    task = asyncio.create_task(run_sweep_loop(store, every=0.01))
    await swept.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert (await pieces.has("part_old"), await pieces.has("part_new")) == (False, True)
