"""A small real server of engine.proto: no model, but a real tokenizer, real streams and faults on demand."""

import asyncio
import contextlib
import io
import tarfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import grpc
import grpc.aio
from tokenizers import Tokenizer

from loragate.engine.client.channel_options import SERVER_OPTIONS
from loragate.engine.client.frames import unbatch
from loragate.v1 import engine_pb2 as pb
from loragate.v1 import engine_pb2_grpc as pb_grpc

HEARTBEAT_SECONDS = 0.1

Script = Callable[[pb.Submit], list[int]]


@dataclass
class ReceivedAdapter:
    """An adapter's bytes as received over the connection."""

    config_json: bytes = b""
    tensors: bytearray = field(default_factory=bytearray)
    error: str = ""
    complete: asyncio.Event = field(default_factory=asyncio.Event)


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return an archive with these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


class StubEngine(pb_grpc.EngineServiceServicer):
    """Responds to each request with the tokens of `script`; the default repeats the prompt.

    After `pause_after` tokens a request waits until `resume` is set.
    """

    def __init__(self, target: str, manifest: pb.Manifest, tokenizer: Tokenizer) -> None:
        self.target = target
        self.manifest = manifest
        self.tokenizer = tokenizer
        self.reset()
        self._sessions: set[_Session] = set()
        self._server: grpc.aio.Server | None = None

    def reset(self) -> None:
        """Restore the initial state: no script, no records."""
        self.script: Script = lambda submit: list(submit.prompt_token_ids)
        self.script_of: Callable[[pb.Submit, int], list[int]] = lambda submit, index: self.script(submit)
        self.vector: Callable[[pb.Submit], list[float]] = lambda submit: [3.0, -4.0]  # of a request with pooling
        self.failure = pb.EngineError(code=pb.ERROR_CODE_INTERNAL, message="scripted")
        self.fails: Callable[[pb.Submit], bool] = lambda submit: False
        self.fails_late = False  # with its last token, instead of before it is begun
        self.read_tokens = 0  # of a prompt, when `pause_after` is -1
        self.scores_late = False  # the first completion's, after the others' tokens
        self.cached_tokens = 0  # of each prompt, as its completions' first deltas report
        self.timings = pb.Timings()  # of each request that is traced
        self.ends_with_text = False  # as where a grammar allows nothing more: the last token stops, without EOS
        self.pause_after: int | None = None
        self.pauses: Callable[[pb.Submit], bool] = lambda submit: True
        self.paused = asyncio.Event()
        self.resume = asyncio.Event()
        self.hanging = False
        self.held: list[pb.Held] = []
        self.inventories: list[pb.InventoryRequest] = []
        self.stats = pb.StatsResponse()
        self.stats_asked: list[pb.StatsRequest] = []
        self.trace = b'{"traceEvents":[]}'
        self.traces_asked: list[pb.TraceRequest] = []
        self.submits: list[pb.Submit] = []
        self.exports: list[pb.ExportRequest] = []
        self.export_parts = [tar_of({"config.json": b"{}", "model.safetensors": bytes(3 << 20)})]
        self.export_allowed = asyncio.Event()
        self.export_allowed.set()
        self.export_failure: tuple[grpc.StatusCode, str] | None = None
        self.aborted: asyncio.Queue[int] = asyncio.Queue()
        self.aborted_completions: list[tuple[int, int]] = []  # the request and the index of each that ended singly
        self.adapters: dict[str, ReceivedAdapter] = {}

    def respond_with(self, text: str) -> None:
        """Respond to every request with `text`."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        self.script = lambda submit: ids

    def discard_probe(self, digest: str) -> None:
        """Discard the record of an upload's probe, for tests that count clients' requests."""
        (*_, probe) = (submit for submit in self.submits if submit.adapter.digest == digest)
        self.submits.remove(probe)

    def report_load(self, load: pb.Load) -> None:
        """Send a queue report to every gateway."""
        for session in self._sessions:
            session.outbox.put_nowait(pb.EngineFrame(load=load))

    def placements(self) -> list[tuple[set[str], set[str]]]:
        """Return what each gateway has pinned and prefetched, by digest."""
        return [(session.pinned, session.prefetched) for session in self._sessions]

    async def start(self) -> None:
        self._server = grpc.aio.server(options=SERVER_OPTIONS)
        pb_grpc.add_EngineServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.target)
        await self._server.start()

    async def kill(self) -> None:
        """Stop without closing streams; `start` brings it back."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def Describe(self, request: pb.DescribeRequest, context: object) -> pb.Manifest:
        return self.manifest

    async def Stats(self, request: pb.StatsRequest, context: object) -> pb.StatsResponse:
        self.stats_asked.append(request)
        if self.hanging:
            await asyncio.Event().wait()
        answer = pb.StatsResponse()
        answer.CopyFrom(self.stats)
        rows = [row for row in answer.adapters if row.id > request.adapters_after]
        del answer.adapters[:]
        answer.adapters.extend(rows[: request.adapter_rows])
        answer.more_adapters = len(rows) > request.adapter_rows > 0
        return answer

    async def Inventory(self, request: pb.InventoryRequest, context: object) -> pb.InventoryResponse:
        self.inventories.append(request)
        return pb.InventoryResponse(held=self.held)

    async def Trace(self, request: pb.TraceRequest, context: object) -> pb.TraceResponse:
        self.traces_asked.append(request)
        return pb.TraceResponse(json=self.trace)

    async def ExportMerged(
        self, request: pb.ExportRequest, context: grpc.aio.ServicerContext[pb.ExportRequest, pb.ExportPart]
    ) -> AsyncIterator[pb.ExportPart]:
        self.exports.append(request)
        if self.export_failure is not None:
            await context.abort(*self.export_failure)
        yield pb.ExportPart(size_bytes=sum(map(len, self.export_parts)))
        if request.size_only:
            return
        for part in self.export_parts:
            await self.export_allowed.wait()
            yield pb.ExportPart(data=part)

    async def Session(self, frames: AsyncIterator[pb.ClientFrame], context: object) -> AsyncIterator[pb.EngineFrame]:
        session = _Session(self)
        self._sessions.add(session)
        reader = asyncio.create_task(session.read(frames))
        try:
            while True:
                if self.hanging:
                    await asyncio.Event().wait()
                frame = pb.EngineFrame(heartbeat=pb.Heartbeat())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        frame = await session.outbox.get()
                yield frame  # outside of the timeout, which would cancel the sending of a slow frame
        finally:
            reader.cancel()
            self._sessions.remove(session)
            session.close()


class _Session:
    def __init__(self, engine: StubEngine) -> None:
        self.outbox: asyncio.Queue[pb.EngineFrame] = asyncio.Queue()
        self._engine = engine
        self._running: dict[int, asyncio.Task[None]] = {}
        self._tallies: dict[int, dict[int, pb.Computed]] = {}  # of open completions, by request and index
        self._timed: set[int] = set()
        self.pinned: set[str] = set()
        self.prefetched: set[str] = set()

    async def read(self, frames: AsyncIterator[pb.ClientFrame]) -> None:
        async for frame in unbatch(frames):
            match frame.WhichOneof("kind"):
                case "submit":
                    self._engine.submits.append(frame.submit)
                    # Before the task runs: an abort in the same batch of frames must find it, and is answered.
                    open_ = {index: pb.Computed() for index in range(max(1, frame.submit.n))}
                    self._tallies[frame.submit.request_id] = open_
                    task = asyncio.create_task(self._run(frame.submit))
                    self._running[frame.submit.request_id] = task
                case "abort":
                    self._abort(frame.abort)
                case "pins":
                    self.pinned = {adapter.digest for adapter in frame.pins.adapters}
                case "prefetch":
                    self.prefetched = {adapter.digest for adapter in frame.prefetch.adapters}
                case "retire":
                    gone = list(frame.retire.adapters)
                    self._engine.held = [held for held in self._engine.held if held.adapter not in gone]
                case "adapter_part":
                    self._take(frame.adapter_part)

    def _abort(self, abort: pb.Abort) -> None:
        tallies = self._tallies.get(abort.request_id, {})
        if abort.HasField("index"):
            self._engine.aborted_completions.append((abort.request_id, abort.index))
            ended = {index: tally for index, tally in tallies.items() if index == abort.index}
        else:
            self._running[abort.request_id].cancel()
            self._engine.aborted.put_nowait(abort.request_id)
            ended = dict(tallies)
        for index, tally in ended.items():
            del tallies[index]
            reason = pb.FINISH_REASON_ABORTED
            delta = pb.Delta(request_id=abort.request_id, index=index, finish_reason=reason, computed=tally)
            self.outbox.put_nowait(pb.EngineFrame(step=pb.StepOutput(deltas=[delta])))

    def close(self) -> None:
        """Requests end with their session, as in the real engine."""
        for request_id, task in self._running.items():
            if not task.done():
                task.cancel()
                self._engine.aborted.put_nowait(request_id)

    def _take(self, part: pb.AdapterPart) -> None:
        adapter = self._engine.adapters.get(part.adapter.digest)
        if adapter is None:  # the rest of a transfer that began before `reset`
            return
        adapter.config_json += part.config_json
        adapter.tensors += part.tensors
        adapter.error = part.error
        if part.last or part.error:
            adapter.complete.set()

    async def _run(self, submit: pb.Submit) -> None:
        open_ = self._tallies[submit.request_id]
        if self._engine.fails(submit) and not self._engine.fails_late:
            self._emit(submit, finish_reason=pb.FINISH_REASON_ERROR, error=self._engine.failure)
            return
        if submit.HasField("adapter"):
            await self._load(submit.adapter)
        if submit.pooling:
            await self._pause(submit, 0)
            self._emit(submit, embedding=self._engine.vector(submit), finish_reason=pb.FINISH_REASON_STOP)
            return
        limit = 0 if submit.prompt_only else submit.sampling.max_tokens
        await self._read_prompt(submit, open_)
        if not self._engine.scores_late:
            self._score_prompt(submit)
        for index in [] if limit else list(open_):
            self._emit(submit, index=index, finish_reason=pb.FINISH_REASON_LENGTH)
        scripts = {index: self._engine.script_of(submit, index) for index in open_}
        for position in range(limit):
            if not open_:
                return
            await self._pause(submit, position)
            order = list(open_)
            if self._engine.scores_late and position == 0:
                order.append(order.pop(0))
            for index in order:
                if self._engine.scores_late and position == index == 0:
                    self._score_prompt(submit)
                self._say(submit, index, scripts[index][:limit], position)
            await asyncio.sleep(0)

    def _say(self, submit: pb.Submit, index: int, ids: list[int], position: int) -> None:
        """One token of one completion; EOS after its script."""
        engine, last = self._engine, position == len(ids) - 1
        if last and engine.fails(submit):
            self._emit(submit, index=index, finish_reason=pb.FINISH_REASON_ERROR, error=engine.failure)
        elif position < len(ids):
            reason = pb.FINISH_REASON_UNSPECIFIED
            if position == submit.sampling.max_tokens - 1:
                reason = pb.FINISH_REASON_LENGTH
            if engine.ends_with_text and last:
                reason = pb.FINISH_REASON_STOP
            cached = engine.cached_tokens if position == 0 else 0
            self._emit(submit, ids[position], index=index, finish_reason=reason, cached_tokens=cached)
        else:
            eos = engine.manifest.eos_token_ids[0]
            self._emit(submit, eos, index=index, finish_reason=pb.FINISH_REASON_STOP)

    async def _read_prompt(self, submit: pb.Submit, open_: dict[int, pb.Computed]) -> None:
        """Pause in the middle of it if that is asked for."""
        length = len(submit.prompt_token_ids)
        for tally in open_.values():
            tally.cached_tokens = min(self._engine.cached_tokens, length)
            tally.prompt_tokens = min(self._engine.read_tokens, length - tally.cached_tokens)
        await self._pause(submit, -1)
        for tally in open_.values():
            tally.prompt_tokens = length - tally.cached_tokens

    def _score_prompt(self, submit: pb.Submit) -> None:
        """Emit the logprobs of a prompt in two parts, in the middle of which other completions may begin."""
        if not submit.HasField("prompt_logprobs"):
            return
        tokens = submit.prompt_token_ids[1:]
        for part in tokens[: len(tokens) // 2], tokens[len(tokens) // 2 :]:
            if part:
                self._emit(submit, prompt_logprobs=_prompt_logprobs(part, submit.prompt_logprobs))

    async def _pause(self, submit: pb.Submit, position: int) -> None:
        if position == self._engine.pause_after and self._engine.pauses(submit):
            self._engine.paused.set()
            await self._engine.resume.wait()

    async def _load(self, wanted: pb.AdapterRef) -> None:
        if wanted.digest not in self._engine.adapters:
            self._engine.adapters[wanted.digest] = ReceivedAdapter()
            self.outbox.put_nowait(pb.EngineFrame(adapter_wanted=wanted))
        await self._engine.adapters[wanted.digest].complete.wait()

    def _emit(self, submit: pb.Submit, *token_ids: int, **fields: object) -> None:
        delta = pb.Delta(request_id=submit.request_id, token_ids=token_ids, **fields)  # type: ignore[arg-type]
        tally = self._tallies[submit.request_id].get(delta.index, pb.Computed())
        tally.generated_tokens += len(token_ids)
        if delta.embedding:
            tally.prompt_tokens = len(submit.prompt_token_ids)
        if delta.finish_reason and not (delta.finish_reason == pb.FINISH_REASON_ERROR and not self._engine.fails_late):
            delta.computed.CopyFrom(tally)
        if delta.finish_reason:
            self._tallies[submit.request_id].pop(delta.index, None)
        waits = submit.request_id not in self._timed and not delta.HasField("prompt_logprobs")
        if submit.traceparent and waits:
            self._timed.add(submit.request_id)
            delta.timings.CopyFrom(self._engine.timings)
        if submit.sampling.HasField("top_logprobs"):
            delta.logprobs.extend(_logprob(token_id, submit.sampling.top_logprobs) for token_id in token_ids)
        self.outbox.put_nowait(pb.EngineFrame(step=pb.StepOutput(deltas=[delta])))


def _prompt_logprobs(tokens: Sequence[int], top: int) -> pb.PromptLogprobs:
    """Return -(id + 1) / 8 and the rank 2 for each token; the alternatives are the ids after it, as in `_logprob`."""
    return pb.PromptLogprobs(
        logprobs=[-(token + 1) / 8 for token in tokens],
        ranks=[2] * len(tokens),
        top=top,
        top_token_ids=[token + i for token in tokens for i in range(1, top + 1)],
        top_logprobs=[-0.5 * i for _ in tokens for i in range(1, top + 1)],
    )


def _logprob(token_id: int, top: int) -> pb.TokenLogprob:
    """Return -0.5 for the token itself; the alternatives are the ids after it."""
    candidates = [pb.Candidate(token_id=token_id + i, logprob=-0.5 - i) for i in range(top)]
    return pb.TokenLogprob(logprob=-0.5, top=candidates)
