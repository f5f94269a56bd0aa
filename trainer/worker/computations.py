"""The forward_backwards that are computed: which of several runs are computed together, their turns and results."""

import logging
import time
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from loragate.adapter_store.store import Store
from loragate.adapter_store.training.lease import Progress
from loragate.adapter_store.training.objects import Command, CommandKind, Outcome, RequestStatus
from loragate.adapter_store.usage.training import TrainingUsage
from loragate.trainer.computation import Computation
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.request import SAMPLER_DIFFERENCE
from loragate.trainer.trainer import ForwardBackward, ForwardBackwardResult
from loragate.trainer.worker.compute import Compute
from loragate.trainer.worker.config import TrainerConfig
from loragate.trainer.worker.held_run import HeldRun
from loragate.trainer.worker.held_runs import HeldRuns, Waiting
from loragate.trainer.worker.metrics import TrainerMetrics
from loragate.trainer.worker.requests import forward_backward, forward_backward_output

log = logging.getLogger(__name__)

INTERNAL_ERROR = "The trainer failed on this request; the server's log has the cause."
_BACKWARD_COST, _FORWARD_COST = 3, 1  # of a token


@dataclass(frozen=True, slots=True)
class Chosen:
    """A request, of a command of a run."""

    held: HeldRun
    command: Command
    request: ForwardBackward


@dataclass(slots=True)
class Running:
    """Requests that are computed together, for `seconds` so far."""

    chosen: Sequence[Chosen]
    computation: Computation
    seconds: float = 0.0

    @property
    def runs(self) -> Sequence[HeldRun]:
        return tuple({each.held.id: each.held for each in self.chosen}.values())


class Computations:
    """Computes a step at a time: what comes later with fewer tokens does not wait for the end of a large request."""

    def __init__(
        self, store: Store, compute: Compute, runs: HeldRuns, config: TrainerConfig, metrics: TrainerMetrics
    ) -> None:
        self._store = store
        self._compute = compute
        self._runs = runs
        self._config = config
        self._metrics = metrics
        self._running: list[Running] = []

    @property
    def busy(self) -> Set[str]:
        """The ids of the runs that are computed."""
        return {held.id for running in self._running for held in running.runs}

    def next(self) -> Running | None:
        """Return the computation whose turn it is among those that have begun."""
        return min(self._running, key=self.served, default=None)

    def served(self, running: Running) -> float:
        """Return what the tenant was given that was given least of those of a computation."""
        return min(map(self._runs.served, running.runs))

    async def begin(self, first: HeldRun, waiting: Waiting) -> Running | None:
        """Choose the next forward_backwards of the run whose turn it is, and of others beside it while they fit."""
        chosen = await self._choose(first, waiting)
        if not chosen:
            return None
        requests = [each.request for each in chosen]
        running = Running(chosen, await self._compute.run_step(lambda trainer: trainer.begin(requests)))
        self._running.append(running)
        return running

    async def advance(self, running: Running) -> None:
        """Compute the next step and, after the last one, record the results."""
        computation = running.computation
        step = computation.next_step
        started = time.monotonic()
        try:
            if step is not None:
                await self._compute.run_step(lambda _: computation.advance())
        except Exception:
            log.exception("forward_backward failed")
            self._running.remove(running)
            await self._record(running, [TrainingRejected(INTERNAL_ERROR)] * len(running.chosen))
            return
        if step is not None:
            seconds = time.monotonic() - started
            running.seconds += seconds
            self._metrics.record_step(seconds, sum(step.tokens.values()), len(step.tokens))
            cost = _BACKWARD_COST if step.train else _FORWARD_COST
            for held in running.runs:
                self._runs.serve(held, cost * step.tokens.get(held.id, 0))
        if computation.next_step is None:
            try:
                await self._record(running, computation.results())
            finally:
                self._running.remove(running)

    async def _choose(self, first: HeldRun, waiting: Waiting) -> list[Chosen]:
        others = (self._runs[each] for each in waiting if each != first.id and each in self._compute.loaded)
        chosen: list[Chosen] = []
        rejected: list[tuple[HeldRun, Progress]] = []
        room = self._config.max_step_tokens
        for held in (first, *sorted(others, key=self._runs.served)):
            for command in _forward_backwards(waiting[held.id]):
                if chosen and room <= 0:
                    break
                pending = sum(_tokens(each.request) for each in chosen if each.held.tenant_id == held.tenant_id)
                request = await self._checked(held, command, pending)
                if request is None:
                    self._runs.hold_back(held)
                    break
                if isinstance(request, Outcome):
                    if not any(each.held is held for each in chosen):
                        rejected.append((held, Progress({command.seq: request}, gradients_failed=True)))
                    break
                chosen.append(Chosen(held, command, request))
                room -= _tokens(request)
        for held, progress in rejected:
            self._compute.trainer.clear_gradients(held.id)
            await self._runs.record(held, progress)
        return chosen

    async def _checked(self, held: HeldRun, command: Command, pending: int) -> ForwardBackward | Outcome | None:
        """Return a request that can be computed, or why it fails; None if it has to wait. `pending` tokens of its
        tenant are computed with it."""
        async with self._store.tenant(held.tenant_id) as scope:
            payload = await scope.training_lease.payload(held.id, command.seq)
            try:
                request = forward_backward(held.id, payload)
                self._compute.trainer.check(request.data, request.loss_fn, request.loss_config)
            except TrainingRejected as error:
                return Outcome.failed(str(error))
            budget = await scope.training_lease.budget(pending)
        if budget.exceeded is not None:
            return Outcome.failed(budget.exceeded)
        return None if budget.waits else request

    async def _record(self, running: Running, results: Sequence[ForwardBackwardResult | TrainingRejected]) -> None:
        total = sum(_tokens(each.request) for each in running.chosen)
        for held in running.runs:
            if not self._runs.holds(held):
                continue
            outcomes, tokens, failed = {}, 0, held.run.gradients_failed
            for each, result in zip(running.chosen, results, strict=True):
                if each.held is not held:
                    continue
                if isinstance(result, TrainingRejected):
                    outcomes[each.command.seq] = Outcome.failed(str(result))
                    failed = True
                    self._compute.trainer.clear_gradients(held.id)
                else:
                    count, loss = _tokens(each.request), result.metrics["loss:sum"]
                    done = Outcome.done(forward_backward_output(result))
                    outcomes[each.command.seq] = replace(done, loss=loss, tokens=count)
                    tokens += count
                    self._metrics.record_sampler_difference(result.metrics.get(SAMPLER_DIFFERENCE))
            used = TrainingUsage(tokens, int(1000 * running.seconds * tokens / max(1, total)))
            price = self._config.price(held.tenant_id)
            amount = None if price is None else price * tokens
            await self._runs.record(held, Progress(outcomes, failed, used=used, amount=amount))


def _forward_backwards(commands: Sequence[Command]) -> Iterator[Command]:
    """Yield the first commands while they are forward_backwards."""
    for command in commands:
        if command.kind is not CommandKind.FORWARD_BACKWARD or command.status is RequestStatus.FAILED:
            return
        yield command


def _tokens(request: ForwardBackward) -> int:
    return sum(len(datum.tokens) for datum in request.data)
