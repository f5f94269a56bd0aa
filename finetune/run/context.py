"""What a worker works with, whatever it works on."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from loragate.adapter_store.publishing.probe import Probe
from loragate.adapter_store.store import Store
from loragate.finetune.config import WorkerConfig
from loragate.finetune.run.metrics import FinetuneMetrics
from loragate.finetune.run.preparation import Preparation

EngineLoads = Callable[[], AsyncIterator[float]]
"""How busy the engine is, again and again; see `engine_load`."""


async def alone() -> AsyncIterator[float]:
    """The loads of an engine that nobody has to give way to."""
    yield 0.0


@dataclass(frozen=True)
class WorkerContext:
    """`base` is the base model's id."""

    store: Store
    preparation: Preparation
    probe: Probe
    config: WorkerConfig
    base: str
    engine_loads: EngineLoads
    metrics: FinetuneMetrics
