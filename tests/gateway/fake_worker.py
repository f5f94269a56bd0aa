"""Stands in for a fine-tuning worker: writes to a gateway's store what a worker would write."""

from typing import Any

from loragate.adapter_store.adapters.adapter import AliasTarget
from loragate.adapter_store.errors import Failure
from loragate.adapter_store.jobs.job import Job, JobStatus
from loragate.adapter_store.store import Store
from loragate.finetune.data.formats import Method
from loragate.finetune.jobs.hyperparameters import HYPERPARAMETERS
from loragate.finetune.jobs.model_name import TRAINED, tuned_name
from loragate.finetune.jobs.recipe import BaseFacts, DataFacts, resolve_recipe
from tests.gateway.running_gateway import Gateway
from tests.gateway.tiny_model import MODEL_ID

WORKER = "w1"
TOKENS = 1000


class FakeWorker:
    """Holds one job at a time."""

    def __init__(self, gateway: Gateway) -> None:
        assert gateway.services is not None
        self.store: Store = gateway.services.store
        self.tenant_id = gateway.tenant_id

    async def run(self, method: str, job_id: str, *arguments: Any, **named: Any) -> Any:
        """Run an operation of the worker, with its lease if needed."""
        lease = () if method == "log_event" else (WORKER,)
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            return await getattr(scope.job_lease, method)(job_id, *lease, *arguments, **named)

    async def validate(self) -> Job:
        """Claim the next job and validate its file, which has twenty examples."""
        job = await self._claim(JobStatus.VALIDATING)
        kind = HYPERPARAMETERS[Method(job.request.method)]
        asked = kind.model_validate(dict(job.request.hyperparameters))
        facts = BaseFacts(16, 256, 64), None if asked.streaming else DataFacts(20, TOKENS)
        recipe = resolve_recipe(asked, Method(job.request.method), *facts, job.request.seed)
        await self.run("validated", job.id, recipe.to_document(), TOKENS * recipe.epochs)
        return job

    async def train(self, steps: int = 4) -> Job:
        """Claim the next job and train half of it."""
        job = await self._claim(JobStatus.QUEUED)
        for step in range(1, steps // 2 + 1):
            await self.run("progress", job.id, step, steps)
            figures = {"step": step, "steps": steps, "train_loss": 2.0 / step, "token_accuracy": 0.5}
            await self.run("log_event", job.id, f"Step {step}/{steps}", type="metrics", data=figures)
        return job

    async def succeed(self, job: Job, upload: Any, evaluation: Any = None) -> str:
        """Finish the job with an adapter; return its name."""
        name = tuned_name(MODEL_ID, "first", job.request.suffix, job.id)
        await upload(name.adapter)
        async with self.store.tenant(self.tenant_id, write=True) as scope:
            await scope.adapters.set_alias(name.adapter, TRAINED, [AliasTarget(1)])
        await self.run("succeed", job.id, name.model, "file-results", evaluation)
        return name.model

    async def fail(self, job: Job) -> None:
        """Fail the job because of its file."""
        await self.run("fail", job.id, Failure("invalid_training_file", "Line 3: it is no JSON.", "training_file"))

    async def _claim(self, stage: JobStatus) -> Job:
        async with self.store.admin(write=True) as admin:
            claim = await admin.job_queue.claim(WORKER, stage, 9)
        assert claim is not None
        return claim.job
