"""A request's use of reasoning: whether the model may think, how long, and what of it the caller sees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loragate.gateway.errors import InvalidRequest
from loragate.gateway.reasoning.format import ReasoningFormat, ReasoningReader
from loragate.gateway.schemas.inference.chat import ChatRequest
from loragate.gateway.text.base_model import BaseModel
from loragate.v1 import engine_pb2 as pb

_RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
# The names under which templates let the caller turn reasoning on and off.
_SWITCHES = ("enable_thinking", "thinking")


@dataclass(frozen=True, slots=True)
class ReasoningUse:
    """`segment`: the engine ends the reasoning by it, and a grammar begins after it; None: the model decides alone."""

    format: ReasoningFormat
    is_open: bool  # the prompt ends inside the reasoning
    segment: pb.Thinking | None = None
    include: bool = True  # the caller wants to see it
    as_content: bool = False  # messages also carry it as `reasoning_content`

    def reader(self, *, calls: bool) -> ReasoningReader:
        """Return a reader for one completion. `calls`: tool calls stay in the answer as the model writes them."""
        return self.format.reader(is_open=self.is_open, calls=calls)


def template_variables(base: BaseModel, body: ChatRequest) -> Mapping[str, Any]:
    """Return the variables of the chat template that the request sets. Raise InvalidRequest."""
    template = base.chat_template
    if template is None:
        return {}
    variables: dict[str, Any] = {}
    if body.reasoning_effort is not None:
        variables["reasoning_effort"] = body.reasoning_effort
    if (enabled := body.thinking_enabled) is not None:
        variables |= dict.fromkeys(_SWITCHES, enabled)
    known = template.variables - _RESERVED
    for name, value in (body.chat_template_kwargs or {}).items():
        if name not in known and name not in _SWITCHES:
            names = ", ".join(sorted(known)) or "none"
            raise InvalidRequest(
                f"Invalid 'chat_template_kwargs.{name}': the template of '{base.id}' has no such variable; "
                f"it has: {names}.",
                param=f"chat_template_kwargs.{name}",
                code="invalid_value",
            )
        variables[name] = value
    return {name: value for name, value in variables.items() if name in known}


def reasoning_use(
    format: ReasoningFormat,
    base: BaseModel,
    body: ChatRequest,
    prompt: Sequence[int],
    *,
    constrained: bool,
    as_content: bool,
) -> ReasoningUse:
    """Return how the completions are divided. Raise InvalidRequest for a budget that cannot be kept."""
    budget = body.thinking_budget
    is_open = format.is_open(prompt)
    if body.thinking_enabled is False and budget is None and not _has_switch(base):
        budget = 0 if format.thinking(is_open=is_open, max_tokens=0) is not None else None
    segment = None
    if constrained or budget is not None:
        segment = format.thinking(is_open=is_open, max_tokens=budget)
        if segment is None and budget is not None:
            raise InvalidRequest(
                f"Invalid 'thinking_token_budget': the tokenizer of '{base.id}' has no tokens for the marks of its "
                "reasoning, so it cannot be ended after a number of tokens: leave it out.",
                param="thinking_token_budget",
                code="thinking_budget_not_supported",
            )
    return ReasoningUse(format, is_open, segment, body.include_reasoning is not False, as_content)


def _has_switch(base: BaseModel) -> bool:
    return base.chat_template is not None and not base.chat_template.variables.isdisjoint(_SWITCHES)
