"""Preparation of requests: from request bodies to checked generation requests."""

import asyncio
from collections.abc import Sequence

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.gateway.generation.constraint import Constraint, chat_constraint, check_takes_tools, constraint, tool_use
from loragate.gateway.generation.prepare_pooling import PoolingPreparer
from loragate.gateway.generation.preparer import (
    CHARACTERS_PER_CHARGED_TOKEN,
    Charge,
    out_of_range,
    settled_on_error,
)
from loragate.gateway.generation.prompt_logprobs import check_prompt_logprobs
from loragate.gateway.generation.reasoning import ReasoningUse, reasoning_use, template_variables
from loragate.gateway.generation.request import GenerationRequest, share_of
from loragate.gateway.generation.tokenize import (
    ChatPrompt,
    chat_size,
    check_length,
    prompts_size,
    room_for_completion,
)
from loragate.gateway.limits.lease import EXTENSION
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.schemas.inference.completions import CompletionRequest
from loragate.gateway.schemas.inference.sampling import SamplingFields
from loragate.gateway.schemas.inference.tokens import DetokenizeRequest, TokenizeRequest
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.message import ToolUse
from loragate.gateway.tracing.current import step
from loragate.v1 import engine_pb2 as pb

_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's


class RequestPreparer(PoolingPreparer):
    """Resolves, tokenizes and checks request bodies. One per process, and one for the lines of `batches`, to which the
    limits of requests do not apply."""

    async def chat(self, caller: TenantPrincipal, body: ChatRequest) -> GenerationRequest:
        """Prepare a chat completion. Raise ApiError and StoreError."""
        base, config = self._link.base, self._config
        n = self._checked_n(body)
        target = await self._generating_target(caller, base, body.model, body.sticky_key)
        tools = tool_use(base, body)
        size = chat_size(base, body.messages)
        lease = await self._charge_first(caller, target, size, n * (body.token_limit or EXTENSION))
        with settled_on_error(lease):
            with step("tokenize"):
                prompt = await self._tokenizer.chat(base, caller.tenant_id, size, _chat_prompt(base, body))
            limit = room_for_completion(base, len(prompt), body.token_limit, config.default_chat_tokens, "messages")
            if body.prompt_logprobs is not None:
                check_prompt_logprobs([prompt], body.prompt_logprobs + 1, "prompt_logprobs")
            grammar = await _constraint(base, body, tools)
            return GenerationRequest(
                target=target,
                base=base,
                prompts=(prompt,),
                sampling=_checked_sampling(base, body, limit, body.wanted_logprobs),
                n=n,
                stop=tuple(body.stop or ()),
                include_stop=bool(body.include_stop_str_in_output),
                constraint=grammar,
                tools=tools,
                reasoning=self._reasoning(base, body, prompt, constrained=grammar is not None),
                draft_tokens=body.draft_tokens or 0,
                prompt_logprobs=body.prompt_logprobs,
                share=share_of(caller, body.priority, config, batch=self._batches),
                open_ended=body.token_limit is None,
                lease=lease,
            )

    def _reasoning(
        self, base: BaseModel, body: ChatRequest, prompt: Sequence[int], *, constrained: bool
    ) -> ReasoningUse | None:
        if base.reasoning is None:
            return None
        as_content = self._config.reasoning_content
        return reasoning_use(base.reasoning, base, body, prompt, constrained=constrained, as_content=as_content)

    async def completion(self, caller: TenantPrincipal, body: CompletionRequest) -> GenerationRequest:
        """Prepare a text completion. Raise ApiError and StoreError."""
        base, config = self._link.base, self._config
        n = self._checked_n(body)
        if len(body.prompts) > config.max_prompts:
            raise out_of_range("prompt", f"at most {config.max_prompts} prompts are allowed")
        target = await self._generating_target(caller, base, body.model, body.sticky_key)
        size = prompts_size(base, body.prompts, "prompt")
        completions = n * len(body.prompts)
        lease = await self._charge_first(
            caller,
            target,
            size,
            completions * (_DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens),
        )
        with settled_on_error(lease):
            with step("tokenize"):
                prompts = await self._tokenizer.prompts(base, caller.tenant_id, size, body.prompts, "prompt")
            longest = max(map(len, prompts))
            limit = room_for_completion(base, longest, body.max_tokens, _DEFAULT_COMPLETION_TOKENS, "prompt")
            _check_scored(body, prompts)
            return GenerationRequest(
                target=target,
                base=base,
                prompts=prompts,
                sampling=_checked_sampling(base, body, limit, body.logprobs),
                n=n,
                stop=tuple(body.stop or ()),
                include_stop=bool(body.include_stop_str_in_output),
                constraint=constraint(body),
                draft_tokens=body.draft_tokens or 0,
                prompt_logprobs=body.prompt_logprobs,
                echo_logprobs=body.echo_logprobs,
                share=share_of(caller, body.priority, config, batch=self._batches),
                lease=lease,
            )

    async def tokens(self, caller: TenantPrincipal, body: TokenizeRequest) -> tuple[list[int], dict[str, str]]:
        """Return the tokens of a prompt or a chat, charged to the limits, and the headers of the response. Raise
        ApiError and StoreError."""
        base, tokenizer = self._link.base, self._tokenizer
        target = await self._resolver.resolve(caller, base, body.model or base.id)
        if body.tools:
            check_takes_tools(base)
        size = prompts_size(base, [body.prompt or ""], "prompt")
        if body.messages is not None:
            size = chat_size(base, body.messages)
        lease = await self._reserve(caller, target, size // CHARACTERS_PER_CHARGED_TOKEN)
        with Charge(lease, target.headers) as charge:
            if body.messages is None:
                plain = body.add_special_tokens is not False
                tokens = await tokenizer.text(base, caller.tenant_id, body.prompt or "", plain=plain)
            else:
                chat = ChatPrompt(body.messages, body.tools or (), body.ending)
                plain = bool(body.add_special_tokens)
                tokens = await tokenizer.chat(base, caller.tenant_id, size, chat, plain=plain)
            charge.tokens = len(tokens)
        return tokens, charge.headers

    async def chat_tokens(self, caller: TenantPrincipal, body: ChatRequest) -> tuple[list[int], dict[str, str]]:
        """Return the tokens of the prompt that `chat` would prepare, charged to the limits, and the headers of the
        response. Raise ApiError and StoreError."""
        base = self._link.base
        target = await self._resolver.resolve(caller, base, body.model)
        if body.usable_tools:
            check_takes_tools(base)
        size = chat_size(base, body.messages)
        lease = await self._reserve(caller, target, size // CHARACTERS_PER_CHARGED_TOKEN)
        with Charge(lease, target.headers) as charge:
            tokens = await self._tokenizer.chat(base, caller.tenant_id, size, _chat_prompt(base, body))
            charge.tokens = len(tokens)
        return tokens, charge.headers

    async def text(self, caller: TenantPrincipal, body: DetokenizeRequest) -> tuple[str, dict[str, str]]:
        """Return the text of tokens, charged to the limits, and the headers of the response. Raise ApiError and
        StoreError."""
        base = self._link.base
        target = await self._resolver.resolve(caller, base, body.model or base.id)
        check_length(base, len(body.tokens), "tokens")
        lease = await self._reserve(caller, target, len(body.tokens))
        with Charge(lease, target.headers) as charge:
            text = await self._tokenizer.spelled(base, caller.tenant_id, body.tokens)
            charge.tokens = len(body.tokens)
        return text, charge.headers

    def _checked_n(self, body: SamplingFields) -> int:
        n = body.n or 1
        if n > self._config.max_n:
            raise out_of_range("n", f"at most {self._config.max_n} completions are allowed")
        return n


def _chat_prompt(base: BaseModel, body: ChatRequest) -> ChatPrompt:
    variables = template_variables(base, body) if body.sets_variables else {}
    return ChatPrompt(body.messages, body.usable_tools, body.ending, variables)


async def _constraint(base: BaseModel, body: ChatRequest, tools: ToolUse | None) -> Constraint | None:
    """Write a grammar of all tools off the event loop: their schemas may be megabytes."""
    if tools is None:
        return chat_constraint(base, body, tools)
    return await asyncio.to_thread(chat_constraint, base, body, tools)


def _check_scored(body: CompletionRequest, prompts: Sequence[Sequence[int]]) -> None:
    """Check that the logprobs of prompts, which each completion repeats, do not make the response too large."""
    wanted = {"prompt_logprobs": body.prompt_logprobs, "logprobs": body.echo_logprobs}
    given = {param: top for param, top in wanted.items() if top is not None}
    if given:
        each = (body.n or 1) * sum(top + 1 for top in given.values())
        check_prompt_logprobs(prompts, each, next(iter(given)))


def _checked_sampling(base: BaseModel, body: SamplingFields, limit: int, top_logprobs: int | None) -> pb.Sampling:
    if (body.min_tokens or 0) > limit:
        raise out_of_range("min_tokens", f"it must not be above the completion's limit of {limit} tokens")
    for param, token_ids in (("logit_bias", [*(body.logit_bias or ())]), ("stop_token_ids", body.stop_token_ids or [])):
        if not base.accepts(token_ids):
            raise out_of_range(param, f"token ids must be below {base.manifest.vocab_size}")
    return body.sampling(limit, top_logprobs, base.manifest.sampling_defaults)
