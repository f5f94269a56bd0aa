"""A worker in its own process, which a test suspends and resumes.

python hanging_worker.py DATABASE BLOBS MANIFEST BASE WORKSPACE
"""

import asyncio
import logging
import sys
from pathlib import Path

from runs import HIDDEN

from loragate.adapter_store.publishing.probe import no_probe
from loragate.adapter_store.store import Store
from loragate.finetune.config import WorkerConfig
from loragate.finetune.worker.served_model import ServedModel
from loragate.finetune.worker.worker import Worker
from loragate.v1 import engine_pb2 as pb


async def main(database: str, blobs: str, manifest: str, base: str, workspace: str) -> None:
    store = await Store.open(database, blobs, b"a secret key for the tests, 32+ bytes")
    config = WorkerConfig(
        "hanging",
        Path(base),
        Path(workspace),
        row_tokens=256,
        poll_seconds=0.05,
        checkpoint_steps=4,
        backup_interval_seconds=0.0,
    )
    served = pb.Manifest.FromString(Path(manifest).read_bytes())
    await Worker(store, served, no_probe, config, ServedModel(Path(base), HIDDEN)).run()


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    asyncio.run(main(*sys.argv[1:]))
