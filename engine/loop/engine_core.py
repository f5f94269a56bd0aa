"""The step loop: executes commands, schedules steps, has them computed, and emits their outputs.

Everything here runs on one thread. Other threads communicate with it through `post`, and it responds through `emit`.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from loragate.engine.adapters.pool import AdapterPool, AdapterTooLarge
from loragate.engine.execution.model_runner import ModelRunner
from loragate.engine.execution.step_graphs import GraphCounters
from loragate.engine.grammar.compiler import Compiled, GrammarCompiler, GrammarRejected
from loragate.engine.grammar.matcher import Matcher
from loragate.engine.grammar.spec import Grammar
from loragate.engine.grammar.thinking import matcher_for
from loragate.engine.kv_cache.block_pool import BlockPool
from loragate.engine.loop.commands import (
    Abort,
    AdapterCopied,
    AdapterFailed,
    AdapterRead,
    Command,
    GrammarCompiled,
    Pin,
    Preload,
    Retire,
    Stop,
    Submit,
)
from loragate.engine.loop.grammar_queue import GrammarQueue
from loragate.engine.loop.request_limits import ModelLimits
from loragate.engine.loop.stepper import Stepper
from loragate.engine.metrics.counters import BatchSize, EngineMetrics
from loragate.engine.metrics.timeline import EngineState, Timeline
from loragate.engine.runtime.thread_governor import ThreadGovernor
from loragate.engine.scheduling.scheduler import Scheduler
from loragate.engine.sequence.output import ErrorCode, Failure, FinishReason, Output
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence

log = logging.getLogger(__name__)


class EngineCore:
    """The thread that runs the step loop, and the state that it owns."""

    def __init__(
        self,
        *,
        runner: ModelRunner,
        scheduler: Scheduler,
        blocks: BlockPool,
        adapters: AdapterPool,
        grammars: GrammarCompiler,
        limits: ModelLimits,
        governor: ThreadGovernor,
        emit: Callable[[list[Output]], None],
        on_crash: Callable[[], None],
        on_retired: Callable[[AdapterKey], None],
        on_stopped: Callable[[], None],
        late: bool = False,
    ) -> None:
        self._runner = runner
        self.scheduler = scheduler
        self.blocks = blocks
        self.adapters = adapters
        self._grammars = grammars
        self.limits = limits
        self._emit = emit
        self._on_crash = on_crash
        self._on_retired = on_retired
        self._on_stopped = on_stopped
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.governor = governor
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)
        self._stopping = False
        self._grammar_queue = GrammarQueue()
        self.metrics = EngineMetrics()
        adapters.loaded = self.metrics.adapters.loaded
        self.timeline = Timeline()
        self.stepper = Stepper(
            runner=runner,
            scheduler=scheduler,
            blocks=blocks,
            adapters=adapters,
            grammars=grammars,
            limits=limits,
            metrics=self.metrics,
            timeline=self.timeline,
            late=late,
        )

    @property
    def graphs(self) -> GraphCounters:
        """Counters of steps that were replayed from graphs."""
        graphs = self._runner.graphs
        return GraphCounters() if graphs is None else graphs.counters

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the current step. Running requests get no further output."""
        self.post(Stop())
        self._thread.join()
        self._on_stopped()
        self._grammars.close()

    def post(self, command: Command) -> None:
        """Send a command to the loop. Thread-safe."""
        self._inbox.put(command)

    def _run(self) -> None:
        self.governor.begin()
        try:
            self._loop()
        except BaseException:
            log.exception("the step loop died")
            self._on_crash()
        finally:
            self.governor.end()

    def _loop(self) -> None:
        idle = True
        while not self._stopping:
            outputs = self._take_commands(wait=idle)
            self.adapters.request_pinned()
            self._release_retired()
            outputs += [self.stepper.reject(s, failure) for s, failure in self.scheduler.expired(time.monotonic())]
            self.timeline.ended("commands")
            scheduled = self.scheduler.schedule()
            self.timeline.ended("schedule")
            idle = not scheduled and not self.stepper.in_flight
            batch = self.metrics.scheduled(scheduled) if scheduled else None
            outputs += self.stepper.step(scheduled) if scheduled else self.stepper.collect()
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
        seconds = self.timeline.record(batch, state)
        self.metrics.step_seconds.observe(seconds)
        self.governor.step_ended(time.monotonic(), seconds)

    def _take_commands(self, *, wait: bool) -> list[Output]:
        outputs: list[Output] = []
        command = self._next_command(wait=wait)
        self.timeline.begin()  # time spent waiting for work is not part of a step
        while command is not None:
            outputs += self._execute(command)
            command = self._next_command(wait=False)
        return outputs

    def _next_command(self, *, wait: bool) -> Command | None:
        try:
            return self._inbox.get(block=wait, timeout=self._seconds_to_deadline())
        except queue.Empty:
            return None

    def _seconds_to_deadline(self) -> float | None:
        """Return the seconds until a waiting request may have to be rejected."""
        deadline = self.scheduler.next_deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _execute(self, command: Command) -> list[Output]:
        match command:
            case Submit(request):
                return self._submit(request)
            case Abort(session_id, request_id, index):
                return self._abort(session_id, request_id, index)
            case GrammarCompiled(tenant_id, grammar, result):
                waiting = self._grammar_queue.take(tenant_id, grammar)
                return [output for request in waiting for output in self._begin(request, result)]
            case AdapterRead(key, host):
                self.scheduler.set_token_cost(key, host.token_cost)
                try:
                    self.adapters.read_done(key, host)
                except AdapterTooLarge as error:
                    return self._adapter_failed(key, str(error))
            case AdapterFailed(key, reason):
                return self._adapter_failed(key, reason)
            case AdapterCopied(copy, result):
                if isinstance(result, Exception):
                    self._runner.check_device()
                    key = self.adapters.copy_failed(copy)
                    return self._adapter_failed(key, f"copying it to the device failed ({type(result).__name__})")
                self.adapters.copy_done(copy, result)
            case Pin(keys):
                self.adapters.pin(keys)
            case Preload(keys):
                self.adapters.preload(keys)
            case Retire(keys):
                self.adapters.retire(keys)
            case Stop():
                self._stopping = True
        return []

    def _abort(self, session_id: int, request_id: int | None, index: int | None) -> list[Output]:
        """End sequences of a session, and report what was computed for each."""
        found = self.scheduler.find(session_id, request_id)
        aborted = [sequence for sequence in found if index in (None, sequence.index)]
        for sequence in aborted:
            self.scheduler.remove(sequence)
            self.metrics.left(sequence.request, sequence.index)
        outputs = [Output(s.request, s.index, finish=FinishReason.ABORTED, computed=s.usage) for s in aborted]
        if index is None:
            dropped = self._grammar_queue.drop(session_id, request_id)
            outputs += [Output(request, 0, finish=FinishReason.ABORTED) for request in dropped]
        return outputs

    def _release_retired(self) -> None:
        """Release the retired adapters that are unused."""
        for key in self.adapters.release_retired(lambda key: bool(self.scheduler.waiting_for(key))):
            self._on_retired(key)

    def _adapter_failed(self, key: AdapterKey, reason: str) -> list[Output]:
        """Fail the requests that wait for the adapter, and only these."""
        waiting = self.scheduler.waiting_for(key)
        failure = Failure(ErrorCode.ADAPTER_UNAVAILABLE, reason)
        outputs = [self.stepper.reject(s, failure) for s in waiting]
        self.adapters.read_failed(key)
        return outputs

    def _submit(self, request: Request) -> list[Output]:
        problem = self.limits.problem(request)
        if problem is not None:
            return [_failed(request, Failure(ErrorCode.INVALID_REQUEST, problem))]
        if request.grammar is None:
            return self._begin(request, None)
        rejection = self.scheduler.rejection(request, time.monotonic())
        if rejection is not None:
            return [_failed(request, rejection)]
        if self._grammar_queue.add(request, request.grammar):
            self._compile(request.share.tenant_id, request.grammar)
        return []

    def _compile(self, tenant_id: str, grammar: Grammar) -> None:
        self._grammars.compile(
            tenant_id,
            grammar,
            lambda result: self.post(GrammarCompiled(tenant_id, grammar, result)),
            wanted=lambda: self._grammar_queue.has(tenant_id, grammar),
        )

    def _begin(self, request: Request, compiled: Compiled | None) -> list[Output]:
        """Pass a checked request to the scheduler, with its compiled grammar if it has one."""
        if isinstance(compiled, GrammarRejected):
            return [_failed(request, Failure(ErrorCode.INVALID_REQUEST, f"the grammar cannot be used: {compiled}"))]
        rejection = self.scheduler.rejection(request, time.monotonic())
        if rejection is not None:
            return [_failed(request, rejection)]
        for index in range(request.n):
            matcher: Matcher | None = compiled and compiled.fork()
            if request.thinking is not None:
                matcher = matcher_for(request.thinking, matcher, self.limits.eos)
            self.scheduler.add(Sequence(request, index, matcher))
        self.metrics.submitted(request)
        return []


def _failed(request: Request, failure: Failure) -> Output:
    """Return the output of a request that was not started."""
    return Output(request, 0, finish=FinishReason.ERROR, error=failure)
