"""The engine in this process, without its server: for benchmarks, tests and notebooks."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loragate.engine.adapters.weights.load import load_adapter, read_files
from loragate.engine.config import EngineConfig
from loragate.engine.grammar.spec import Grammar
from loragate.engine.grammar.thinking import Thinking
from loragate.engine.loop.commands import Abort, AdapterFailed, AdapterRead, Submit
from loragate.engine.sequence.output import Output
from loragate.engine.sequence.pooling import Pooling
from loragate.engine.sequence.request import AdapterKey, Request, SamplingParams, Share
from loragate.engine.startup.build import LoadedModel, build_core, load
from loragate.kernels.cpu.openmp import compute_alone

_PATIENCE_SECONDS = 300


class LocalEngine:
    """An engine whose adapters are PEFT folders by name; they are loaded on threads, as in the server.

    `config` are fields of EngineConfig.
    """

    def __init__(self, model: Path, cache_dir: Path, adapters: Mapping[str, Path], **config: Any) -> None:
        self.config = EngineConfig(model=str(model), listen="", cache_dir=cache_dir, **config)
        self.loaded: LoadedModel = load(self.config)
        self._adapters = dict(adapters)
        self._outputs: dict[int, list[Output]] = defaultdict(list)
        self._changed = threading.Condition()
        self._next_id = 0
        self.died = False
        self.core = build_core(
            self.loaded,
            self.config,
            request_read=lambda key: threading.Thread(target=self._load, args=(key,)).start(),
            emit=self._emit,
            on_crash=self._die,
        )
        self.core.start()

    def submit(
        self,
        prompt: Sequence[int],
        adapter: str | None = None,
        n: int = 1,
        *,
        tenant: str = "tenant",
        share: Share | None = None,
        cache_salt: bytes = b"",
        grammar: Grammar | None = None,
        draft_tokens: int = 0,
        pooling: Pooling | None = None,
        thinking: Thinking | None = None,
        prompt_logprobs: int | None = None,
        **sampling: Any,
    ) -> int:
        """Start a request and return its number; `sampling` are fields of SamplingParams.

        Without a `share` it uses the tenant's default share; without a `cache_salt` its prefix is not shared.
        """
        sampling.setdefault("max_tokens", 8)
        sampling.setdefault("seed", 0)
        sampling.setdefault("ignore_eos", True)
        self._next_id += 1
        key = None if adapter is None else AdapterKey(tenant, adapter)
        params = SamplingParams(**sampling)
        whose = share or Share(tenant)
        request = Request(
            1,
            self._next_id,
            tuple(prompt),
            key,
            params,
            n,
            whose,
            cache_salt,
            grammar,
            draft_tokens,
            pooling,
            thinking,
            prompt_logprobs,
        )
        self.core.post(Submit(request))
        return self._next_id

    def abort(self, request_id: int, index: int | None = None) -> None:
        """End a request, or one of its completions; its last output says what was computed."""
        self.core.post(Abort(1, request_id, index))

    def wait_for(self, request_id: int, tokens: int) -> None:
        """Wait until the request has produced this many tokens, or ended."""
        self._wait(lambda: len(self.tokens(request_id)) >= tokens or self._ended(request_id, 1))

    def result(self, request_id: int, n: int = 1) -> list[Output]:
        """Wait for the end of a request, and return all its outputs."""
        self._wait(lambda: self._ended(request_id, n))
        return self._outputs[request_id]

    def tokens(self, request_id: int, index: int = 0) -> list[int]:
        """Return the tokens that one completion of a request has produced so far."""
        return [o.token for o in list(self._outputs[request_id]) if o.index == index and o.token is not None]

    def ended(self, request_id: int, n: int = 1) -> bool:
        """Return whether the request has all its outputs."""
        with self._changed:
            return self._ended(request_id, n)

    def generate(self, prompt: Sequence[int], adapter: str | None = None, **sampling: Any) -> list[int]:
        """Run one request to its end, and return its tokens."""
        request_id = self.submit(prompt, adapter, **sampling)
        self.result(request_id)
        return self.tokens(request_id)

    def embed(
        self, prompt: Sequence[int], adapter: str | None = None, pooling: Pooling = Pooling.LAST, **options: Any
    ) -> tuple[float, ...]:
        """Return the embedding of a prompt [hidden size], not normalized; `options` are those of `submit`."""
        output = self.result(self.submit(prompt, adapter, pooling=pooling, **options))[-1]
        if output.embedding is None:
            raise RuntimeError(f"there is no embedding: {output.error}")
        return output.embedding

    def classify(
        self, prompt: Sequence[int], adapter: str, *, each_token: bool = False, **options: Any
    ) -> tuple[float, ...]:
        """Return the logits of a prompt by the adapter's head [labels], or of each of its tokens [tokens · labels]."""
        return self.embed(prompt, adapter, Pooling.CLASSIFY_TOKENS if each_token else Pooling.CLASSIFY, **options)

    def close(self) -> None:
        """Stop the step loop."""
        self.core.stop()

    def _load(self, key: AdapterKey) -> None:
        compute_alone()
        try:
            directory = self._adapters[key.digest]
            plan = read_files(directory, self.loaded.layout).plan
            self.core.post(AdapterRead(key, load_adapter(directory, plan, self.loaded.base, self.loaded.layout)))
        except Exception as error:
            self.core.post(AdapterFailed(key, str(error)))

    def _ended(self, request_id: int, n: int) -> bool:
        finishes = [o for o in self._outputs[request_id] if o.finish is not None]
        return len(finishes) >= n or any(o.error for o in finishes)

    def _emit(self, outputs: list[Output]) -> None:
        with self._changed:
            for output in outputs:
                self._outputs[output.request.request_id].append(output)
            self._changed.notify_all()

    def _die(self) -> None:
        with self._changed:
            self.died = True
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: self.died or condition(), timeout=_PATIENCE_SECONDS)
        if self.died or not done:
            raise RuntimeError("the step loop died" if self.died else "the engine did not respond in time")
