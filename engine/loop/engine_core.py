"""The step loop: takes in commands, schedules, has steps computed, and says what came out.

Everything here runs on one thread. Others talk to it through `post`; it talks back through `emit`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

import torch

from loragate.engine.adapters.pool import AdapterPool, AdapterTooLarge
from loragate.engine.execution.model_runner import ModelRunner
from loragate.engine.execution.step_graphs import GraphCounters
from loragate.engine.grammar.compiler import Compiled, GrammarCompiler, GrammarRefused
from loragate.engine.grammar.spec import Grammar
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.loop.commands import (
    Abort,
    AdapterCopied,
    AdapterFailed,
    AdapterRead,
    Command,
    GrammarCompiled,
    Pin,
    Retire,
    Stop,
    Submit,
)
from loragate.engine.loop.grammar_queue import GrammarWait
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.loop.stepper import Stepper
from loragate.engine.metrics.counters import BatchSize, EngineMetrics
from loragate.engine.metrics.timeline import EngineState, Timeline
from loragate.engine.scheduling.scheduler import Scheduler
from loragate.engine.sequence.output import ErrorCode, Failure, FinishReason, Output
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence
from loragate.kernels.cpu.openmp import compute_with

log = logging.getLogger(__name__)


class EngineCore:
    def __init__(
        self,
        runner: ModelRunner,
        scheduler: Scheduler,
        blocks: BlockPool,
        adapters: AdapterPool,
        grammars: GrammarCompiler,
        limits: ModelLimits,
        emit: Callable[[list[Output]], None],
        died: Callable[[], None],
        retired: Callable[[AdapterKey], None],
        stopped: Callable[[], None],
        *,
        late: bool = False,
    ) -> None:
        self._runner = runner
        self.scheduler = scheduler
        self.blocks = blocks
        self.adapters = adapters
        self._grammars = grammars
        self.limits = limits
        self._emit = emit
        self._died = died
        self._retired = retired
        self._stopped = stopped
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)
        self._stopping = False
        self._uncompiled = GrammarWait()
        self.metrics = EngineMetrics()
        adapters.loaded = self.metrics.adapters.loaded
        self.timeline = Timeline()
        parts = runner, scheduler, blocks, adapters, grammars, limits, self.metrics, self.timeline
        self.stepper = Stepper(*parts, late=late)

    @property
    def graphs(self) -> GraphCounters:
        """Steps that were played back."""
        graphs = self._runner.graphs
        return GraphCounters() if graphs is None else graphs.counters

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the current step. Running requests get no further output."""
        self.post(Stop())
        self._thread.join()
        self._stopped()
        self._grammars.close()

    def post(self, command: Command) -> None:
        """Hand a command to the loop; from any thread."""
        self._inbox.put(command)

    def _run(self) -> None:
        compute_with(self._threads)
        try:
            self._loop()
        except BaseException:
            log.exception("the step loop died")
            self._died()

    def _loop(self) -> None:
        idle = True
        while not self._stopping:
            outputs = self._take_commands(wait=idle)
            self.adapters.fetch_pinned()
            self._let_go()
            outputs += [self.stepper.refuse(s, failure) for s, failure in self.scheduler.late(time.monotonic())]
            self.timeline.ended("commands")
            scheduled = self.scheduler.schedule()
            self.timeline.ended("schedule")
            idle = not scheduled and not self.stepper.flying
            batch = self.metrics.scheduled(scheduled) if scheduled else None
            outputs += self.stepper.step(scheduled) if scheduled else self.stepper.land()
            if outputs:
                self.metrics.emitted(outputs)
                self._emit(outputs)
            if batch is not None:
                self._record(batch)

    def _record(self, batch: BatchSize) -> None:
        self.timeline.ended("emit")
        pool = self.adapters.counters
        state = EngineState(
            running=len(self.scheduler.running),
            waiting=len(self.scheduler.waiting),
            kv_blocks=self.blocks.used,
            slots=self.adapters.used,
            loads=pool.loads,
            evictions=pool.evictions,
            preemptions=self.scheduler.preemptions,
        )
        self.metrics.step_seconds.observe(self.timeline.record(batch, state))

    def _take_commands(self, *, wait: bool) -> list[Output]:
        outputs: list[Output] = []
        command = self._next_command(wait=wait)
        self.timeline.begin()  # waiting for something to do is no part of a step
        while command is not None:
            outputs += self._obey(command)
            command = self._next_command(wait=False)
        return outputs

    def _next_command(self, *, wait: bool) -> Command | None:
        try:
            return self._inbox.get(block=wait, timeout=self._patience())
        except queue.Empty:
            return None

    def _patience(self) -> float | None:
        """Seconds until a waiting request may have to be refused."""
        deadline = self.scheduler.next_deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _obey(self, command: Command) -> list[Output]:
        match command:
            case Submit(request):
                return self._submit(request)
            case Abort(session_id, request_id):
                for sequence in self.scheduler.find(session_id, request_id):
                    self.scheduler.remove(sequence)
                    self.metrics.left(sequence.request, sequence.index)
                self._uncompiled.drop(session_id, request_id)
            case GrammarCompiled(grammar, result):
                return [o for request in self._uncompiled.take(grammar) for o in self._begin(request, result)]
            case AdapterRead(key, host):
                self.scheduler.priced(key, host.token_cost)
                try:
                    self.adapters.read(key, host)
                except AdapterTooLarge as error:
                    return self._adapter_failed(key, str(error))
            case AdapterFailed(key, reason):
                return self._adapter_failed(key, reason)
            case AdapterCopied(copy, result):
                if isinstance(result, Exception):
                    self._runner.check_device()
                    key = self.adapters.copy_failed(copy)
                    return self._adapter_failed(key, f"copying it to the device failed ({type(result).__name__})")
                self.adapters.copied(copy, result)
            case Pin(keys):
                self.adapters.pin(keys)
            case Retire(keys):
                self.adapters.retire(keys)
            case Stop():
                self._stopping = True
        return []

    def _let_go(self) -> None:
        """Of adapters that are no more and that nobody uses any longer."""
        for key in self.adapters.let_go(lambda key: bool(self.scheduler.waiting_for(key))):
            self._retired(key)

    def _adapter_failed(self, key: AdapterKey, reason: str) -> list[Output]:
        """Those who wait for it hear so; nobody else does."""
        message = f"its adapter cannot be loaded: {reason}"
        waiting = self.scheduler.waiting_for(key)
        failure = Failure(ErrorCode.ADAPTER_UNAVAILABLE, message)
        outputs = [self.stepper.refuse(s, failure) for s in waiting]
        self.adapters.failed(key)
        return outputs

    def _submit(self, request: Request) -> list[Output]:
        problem = self.limits.problem(request)
        if problem is not None:
            return [_failed(request, Failure(ErrorCode.INVALID_REQUEST, problem))]
        if request.grammar is None:
            return self._begin(request, None)
        refusal = self.scheduler.refusal(request, time.monotonic())
        if refusal is not None:
            return [_failed(request, refusal)]
        if self._uncompiled.add(request, request.grammar):
            self._compile(request.share.tenant_id, request.grammar)
        return []

    def _compile(self, tenant_id: str, grammar: Grammar) -> None:
        self._grammars.compile(tenant_id, grammar, lambda result: self.post(GrammarCompiled(grammar, result)))

    def _begin(self, request: Request, compiled: Compiled | None) -> list[Output]:
        """Hand a checked request to the scheduler, its grammar compiled if it has one."""
        if isinstance(compiled, GrammarRefused):
            return [_failed(request, Failure(ErrorCode.INVALID_REQUEST, f"the grammar cannot be used: {compiled}"))]
        refusal = self.scheduler.refusal(request, time.monotonic())
        if refusal is not None:
            return [_failed(request, refusal)]
        for index in range(request.n):
            self.scheduler.add(Sequence(request, index, compiled and compiled.fork()))
        self.metrics.submitted(request)
        return []


def _failed(request: Request, failure: Failure) -> Output:
    """A request that was not begun."""
    return Output(request, 0, finish=FinishReason.ERROR, error=failure)
