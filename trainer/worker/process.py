"""The trainer's process: runs commands until it receives a signal."""

import asyncio
import logging
import sys

import torch

from loragate.adapter_store.notices.wakeups import TRAINER, Wakeups
from loragate.adapter_store.store import Store
from loragate.engine.config import EngineConfig
from loragate.finetune.worker.engine_link import EngineLink, connect_engine
from loragate.finetune.worker.served_model import served_model
from loragate.finetune.worker.until_signal import run_until_signal
from loragate.finetune.worker.worker_pidfile import write_pidfile
from loragate.trainer.trainer import Trainer
from loragate.trainer.worker.adapters import AdapterStorage
from loragate.trainer.worker.commands import Commands
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.config import TrainerConfig
from loragate.trainer.worker.loop import TrainerLoop
from loragate.trainer.worker.snapshots import Snapshots

log = logging.getLogger(__name__)

_SWITCH_SECONDS = 0.0005
"""For so long a turn of the event loop, of which a command takes many, waits for the interpreter during a step."""


def run(config: TrainerConfig) -> None:
    """Run until SIGTERM or SIGINT, then give all runs back. Raise StoreError, ModelRejected."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    run_until_signal(serve(config))


async def serve(config: TrainerConfig) -> None:
    """Serve until cancelled."""
    store = await Store.open(
        config.database_url,
        config.blob_url,
        config.secret_key,
        previous_secret_keys=config.previous_secret_keys,
        min_free=config.min_free_bytes,
        signatures=config.signatures,
    )
    wakeups = Wakeups(config.wakeup_dir, TRAINER)
    try:
        async with store.admin(write=True) as admin:
            await admin.training_queue.release_all(config.name)
        async with connect_engine(config, store) as engine:
            wakeups.open()
            await _run(config, store, engine, wakeups)
    finally:
        wakeups.close()
        await store.close()


async def _run(config: TrainerConfig, store: Store, engine: EngineLink, wakeups: Wakeups) -> None:
    manifest = await engine.manifest()
    model = await asyncio.to_thread(served_model, config.model, manifest, config.workspace)
    rank = min(config.max_rank, manifest.max_lora_rank)
    base = EngineConfig(
        model=str(model.folder),
        listen="",
        cache_dir=config.workspace,
        device=config.device,
        dtype=config.dtype,
        max_lora_rank=rank,
    )
    trainer = await asyncio.to_thread(
        lambda: Trainer.load(
            model.folder, base, checkpointing=config.checkpointing, max_step_tokens=config.max_step_tokens
        )
    )
    trainer.limit_device_memory(config.max_bytes + config.step_bytes)
    compute = Compute(trainer, config.max_bytes)
    snapshots = Snapshots(store, compute)
    adapters = AdapterStorage(store, manifest, engine, engine.preload)
    loop = TrainerLoop(
        store=store,
        compute=compute,
        commands=Commands(store, compute, snapshots, adapters, rank),
        snapshots=snapshots,
        config=config,
        wakeups=wakeups,
        base_model=manifest.model_id,
    )
    write_pidfile(config.workspace)
    log.info("trainer ready: %s", manifest.model_id)
    try:
        await loop.run()
    finally:
        compute.close()
