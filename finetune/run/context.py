"""What every attempt of a worker shares."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.store import Store
from loragate.finetune.config import WorkerConfig
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.finetune.run.preparation import Preparation
from loragate.peft_format.plan.layout import BaseLayout

EngineLoads = Callable[[], AsyncIterator[float]]
"""Yields the engine's load, 0 to 1, again and again; see `worker.engine_link`."""


async def no_load() -> AsyncIterator[float]:
    """Yield the load of an engine that training does not compete with."""
    yield 0.0


@dataclass(frozen=True)
class WorkerContext:
    """`base` is the base model's id, `layout` all that an adapter may change of it."""

    store: Store
    preparation: Preparation
    probe: Probe
    config: WorkerConfig
    base: str
    layout: BaseLayout
    engine_loads: EngineLoads
    metrics: FinetuneMetrics
