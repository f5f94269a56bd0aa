"""The fine-tune worker's process: runs jobs until it receives a signal."""

import asyncio
import logging
import os
from functools import partial

from loragate.adapter_store.store import Store
from loragate.finetune.config import ServiceConfig, WorkerConfig
from loragate.finetune.run.context import no_load
from loragate.finetune.worker.engine_link import EngineLink, connect_engine, engine_loads
from loragate.finetune.worker.served_model import served_model
from loragate.finetune.worker.until_signal import run_until_signal
from loragate.finetune.worker.worker import Worker
from loragate.finetune.worker.worker_pidfile import write_pidfile

log = logging.getLogger(__name__)


def run(config: ServiceConfig) -> None:
    """Run until SIGTERM or SIGINT, then release all jobs. Raise StoreError, ModelRejected."""
    os.nice(config.nice)  # the training processes inherit it
    run_until_signal(serve(config))


async def serve(config: ServiceConfig) -> None:
    """Serve until cancelled."""
    store = await Store.open(
        config.database_url,
        config.blob_url,
        config.secret_key,
        previous_secret_keys=config.previous_secret_keys,
        min_free=config.min_free_bytes,
        signatures=config.signatures,
    )
    try:
        async with store.admin(write=True) as admin:
            await admin.job_queue.release_all(config.name)
        async with connect_engine(config, store) as engine:
            write_pidfile(config.workspace)
            await (await _worker(config, store, engine)).run()
    finally:
        await store.close()


async def _worker(config: ServiceConfig, store: Store, engine: EngineLink) -> Worker:
    manifest = await engine.manifest()
    model = await asyncio.to_thread(served_model, config.model, manifest, config.workspace)
    chosen = WorkerConfig(
        name=config.name,
        model=model.folder,
        workspace=config.workspace,
        max_jobs_per_tenant=config.max_jobs_per_tenant,
        trainer=config.trainer,
        max_workspace_bytes=config.max_workspace_bytes,
        min_free_bytes=config.min_free_bytes,
        patience=config.patience,
        quantum_seconds=config.quantum_seconds,
        sandbox=config.sandbox,
        training_prices=config.training_prices,
    )
    log.info("fine-tune worker ready: %s", manifest.model_id)
    load = no_load if config.trainer.dedicated_device else partial(engine_loads, engine.clients)
    return Worker(store, manifest, engine, chosen, model, load)
