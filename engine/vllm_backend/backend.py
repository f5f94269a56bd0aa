"""vLLM as a backend of the service: fair order and adapters are ours, computation is vLLM's."""

import asyncio
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path

from loragate.engine.adapters.files import AdapterFiles
from loragate.engine.config import EngineConfig
from loragate.engine.grammar.compiler import Compiled, GrammarCompiler, GrammarRejected
from loragate.engine.grammar.spec import Grammar
from loragate.engine.grammar.tokenizer import TokenSpace
from loragate.engine.loop.grammar_queue import GrammarQueue
from loragate.engine.metrics.counters import EngineMetrics
from loragate.engine.metrics.trace_events import trace_json
from loragate.engine.scheduling.overload import QueueBounds, QueueLoad
from loragate.engine.sequence.output import ErrorCode, Failure, FinishReason, Output
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.sequence import Sequence
from loragate.engine.server.backend import Links
from loragate.engine.vllm_backend.adapter_slots import AdapterSlots, Place
from loragate.engine.vllm_backend.calls import call_from, outputs_from, unmapped
from loragate.engine.vllm_backend.llm import CallRejected, Llm, LlmDied
from loragate.engine.vllm_backend.plain_adapter import PlainAdapter, write_plain
from loragate.engine.vllm_backend.request_queue import RequestQueue
from loragate.engine.vllm_backend.served_model import ServedModel
from loragate.engine.vllm_backend.stats import build_inventory, build_stats
from loragate.peft_format.read import AdapterReading
from loragate.v1 import engine_pb2 as pb

log = logging.getLogger(__name__)

_GRAMMAR_THREADS = 1


class VllmBackend:
    """Implements `Backend`. Runs on the event loop."""

    def __init__(
        self, llm: Llm, model: ServedModel, numbers: Iterator[int], config: EngineConfig, links: Links
    ) -> None:
        self._llm = llm
        self._model = model
        self._links = links
        self._loop = asyncio.get_running_loop()
        self._scratch = config.cache_dir / "vllm-adapters"
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.files: AdapterFiles[PlainAdapter] = AdapterFiles(
            config.cache_dir / "adapters", model.layout, self._write_plain, links.peers, config.adapter_disk_bytes
        )
        self.slots = AdapterSlots(config.adapter_slots, llm, self.files, numbers)
        self.slots.loaded, self.slots.failed = self._adapter_loaded, self._adapter_failed
        self.queue = RequestQueue(
            config.max_batch_size, QueueBounds(config.max_waiting, config.max_waiting_per_tenant), self.slots
        )
        self.slots.evicted, self.slots.died = self.queue.evicted, links.on_crash
        manifest = model.manifest
        space = TokenSpace(manifest.tokenizer_json, manifest.vocab_size, model.limits.eos)
        self._grammars = GrammarCompiler(space, _GRAMMAR_THREADS)
        self._grammar_queue = GrammarQueue()
        self._calls: dict[Sequence, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()  # calls that vLLM has not ended yet
        self.metrics = EngineMetrics()

    @property
    def manifest(self) -> pb.Manifest:
        return self._model.manifest

    @property
    def exporter(self) -> None:
        """None: vLLM's own copies of the weights are not read."""
        return None

    def start(self) -> None:
        """Do nothing: vLLM runs already."""

    async def stop(self) -> None:
        self.slots.close()
        self._grammars.close()
        await self._llm.stop()

    def submit(self, request: Request) -> None:
        problem = unmapped(request) or self._model.limits.problem(request)
        if problem is not None:
            self._reject(request, Failure(ErrorCode.INVALID_REQUEST, problem))
        elif (rejection := self.queue.rejection(request)) is not None:
            self._reject(request, rejection)
        elif request.grammar is None:
            self._begin(request)
        elif self._grammar_queue.add(request, request.grammar):
            self._compile(request.share.tenant_id, request.grammar)

    def abort(self, session_id: int, request_id: int | None = None, index: int | None = None) -> None:
        found = [s for s in self.queue.find(session_id, request_id) if index in (None, s.index)]
        for sequence in found:
            self.metrics.left(sequence.request, sequence.index)
            self._remove(sequence)
        outputs = [Output(s.request, s.index, finish=FinishReason.ABORTED, computed=s.usage) for s in found]
        if index is None:
            dropped = self._grammar_queue.drop(session_id, request_id)
            outputs += [Output(request, 0, finish=FinishReason.ABORTED) for request in dropped]
        self._emit(outputs)
        self._admit()

    def pin(self, keys: tuple[AdapterKey, ...]) -> None:
        self.slots.pin(keys)

    def preload(self, keys: tuple[AdapterKey, ...]) -> None:
        self.slots.preload(keys)

    def retire(self, keys: tuple[AdapterKey, ...]) -> None:
        self.slots.retire(keys)
        self._admit()

    def load(self) -> QueueLoad:
        """Return the load; called several times a second, this also notices deadlines and the end of vLLM."""
        if self._llm.died:
            self._links.on_crash()
        self._admit()
        return self.queue.load()

    def served(self) -> Mapping[str, float]:
        return self.queue.served()

    def stats(self, request: pb.StatsRequest) -> pb.StatsResponse:
        return build_stats(self.metrics, self.queue, self.slots, self.files, request)

    def inventory(self) -> pb.InventoryResponse:
        return build_inventory(self.slots, self.files)

    def trace(self, last_steps: int | None) -> bytes:
        """Return an empty timeline: vLLM's steps are not seen here."""
        return trace_json([])

    def _write_plain(self, path: Path, reading: AdapterReading) -> PlainAdapter:
        key = AdapterKey(path.parent.name, reading.digest)
        return write_plain(path, reading.plan, self._model.layout, self._scratch / key.opaque_id)

    def _compile(self, tenant_id: str, grammar: Grammar) -> None:
        """Compile a grammar within our bounds before vLLM compiles it within none."""
        self._grammars.compile(
            tenant_id,
            grammar,
            partial(self._compiled_elsewhere, tenant_id, grammar),
            wanted=lambda: self._grammar_queue.has(tenant_id, grammar),
        )

    def _compiled_elsewhere(self, tenant_id: str, grammar: Grammar, result: Compiled) -> None:
        """Take a result on the event loop; called from any thread."""
        self._loop.call_soon_threadsafe(self._compiled, tenant_id, grammar, result)

    def _compiled(self, tenant_id: str, grammar: Grammar, result: Compiled) -> None:
        for request in self._grammar_queue.take(tenant_id, grammar):
            if isinstance(result, GrammarRejected):
                words = f"the grammar cannot be used: {result}"
                self._reject(request, Failure(ErrorCode.INVALID_REQUEST, words))
            elif (rejection := self.queue.rejection(request)) is not None:
                self._reject(request, rejection)
            else:
                self._begin(request)

    def _begin(self, request: Request) -> None:
        for index in range(request.n):
            self.queue.add(Sequence(request, index))
        self.metrics.submitted(request)
        self._admit()

    def _admit(self) -> None:
        """Start what can start, and end what waited too long."""
        for late, failure in self.queue.expired():
            self._fail(late, failure)
        self.slots.release_retired(self.queue.wants)
        while (sequence := self.queue.next()) is not None:
            key = sequence.request.adapter
            place = None if key is None else self.slots.acquire(key)
            self._calls[sequence] = asyncio.create_task(self._run(sequence, place))

    async def _run(self, sequence: Sequence, place: Place | None) -> None:
        """Run one completion in vLLM, and hold its adapter until vLLM has ended it."""
        try:
            await self._compute(sequence, place)
        except LlmDied:
            log.exception("vLLM died")
            self._links.on_crash()
        except (CallRejected, GrammarRejected) as error:
            self._fail(sequence, Failure(ErrorCode.INVALID_REQUEST, str(error)))
        except Exception as error:
            log.exception("a call of vLLM failed")
            self._fail(sequence, Failure(ErrorCode.INTERNAL, f"the engine failed ({type(error).__name__})"))
        finally:
            if place is not None:
                self.slots.release(place)
            self._loop.call_soon(self._admit)

    async def _compute(self, sequence: Sequence, place: Place | None) -> None:
        call = call_from(sequence, None if place is None else place.lora, self._model.limits.eos)
        self.metrics.started(sequence.request, sequence.index)
        async with aclosing(self._llm.generate(call)) as steps:  # type: ignore[type-var]
            async for step in steps:
                outputs = list(outputs_from(sequence, step))
                self.queue.charge(sequence, sum(output.token is not None for output in outputs))
                self._emit(outputs)
                if step.finish is not None:
                    self._remove(sequence, running=False)
        self._fail(sequence, Failure(ErrorCode.INTERNAL, "vLLM ended it without a reason"))

    def _remove(self, sequence: Sequence, *, running: bool = True) -> None:
        """Remove a completion that ended; one that runs is ended in vLLM, too."""
        self.queue.remove(sequence)
        task = self._calls.pop(sequence, None)
        if task is not None:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            if running:
                task.cancel()

    def _fail(self, sequence: Sequence, failure: Failure) -> None:
        if not self.queue.holds(sequence):
            return
        self._remove(sequence, running=False)
        error = FinishReason.ERROR
        self._emit([Output(sequence.request, sequence.index, finish=error, error=failure, computed=sequence.usage)])

    def _adapter_loaded(self, key: AdapterKey) -> None:
        self.metrics.adapters.loaded(key)
        self.queue.loaded(key)
        self._admit()

    def _adapter_failed(self, key: AdapterKey, reason: str) -> None:
        """Fail the completions that wait for the adapter, and only these."""
        failure = Failure(ErrorCode.ADAPTER_UNAVAILABLE, reason)
        for sequence in self.queue.waiting.waiting_for(key):
            self._fail(sequence, failure)
        self._admit()

    def _reject(self, request: Request, failure: Failure) -> None:
        """Answer a request that is not started."""
        self._emit([Output(request, 0, finish=FinishReason.ERROR, error=failure)])

    def _emit(self, outputs: list[Output]) -> None:
        if outputs:
            self.metrics.emitted(outputs)
            self._links.emit(outputs)
