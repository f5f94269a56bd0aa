"""Response objects of OpenAI's Responses API."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from loragate.gateway.generation.request import GenerationRequest
from loragate.gateway.schemas.inference.responses import ResponseRequest

ResponseStatus = Literal["in_progress", "completed", "incomplete", "failed"]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What one response is, whatever has come of it so far."""

    body: ResponseRequest
    request: GenerationRequest
    id: str = field(default_factory=lambda: new_item_id("resp"))
    created: int = field(default_factory=lambda: int(time.time()))

    def document(
        self,
        status: ResponseStatus,
        output: Sequence[dict[str, Any]] = (),
        usage: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The response object. What the request left open is shown as it was decided."""
        body, sampling = self.body, self.request.sampling
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": False,
            "error": error,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": body.model,
            "output": list(output),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": None, "summary": None},
            "store": False,
            "temperature": _shown(body.temperature, sampling.temperature),
            "text": {"format": self._format, "verbosity": "medium"},
            "tool_choice": self._tool_choice,
            "tools": [_tool(tool.model_dump()) for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": _shown(body.top_p, sampling.top_p),
            "truncation": "disabled",
            "usage": usage,
            "user": body.user,
        }

    def usage(self, output_tokens: int, cached_tokens: int) -> dict[str, Any]:
        """Tokens, in this API's names."""
        input_tokens = self.request.prompt_tokens
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": cached_tokens, "cache_write_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + output_tokens,
        }

    @property
    def _format(self) -> dict[str, Any]:
        given = None if self.body.text is None else self.body.text.format
        return {"type": "text"} if given is None else given.model_dump(by_alias=True, exclude_none=True)

    @property
    def _tool_choice(self) -> Any:
        choice = self.body.tool_choice
        return choice or "auto" if choice is None or isinstance(choice, str) else choice.model_dump()


def new_item_id(prefix: str) -> str:
    """Such as "msg_…"."""
    return f"{prefix}_{secrets.token_hex(24)}"


def _shown(asked: float | None, decided: float) -> float:
    """Without what single precision adds."""
    return round(decided, 6) if asked is None else asked


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return {**tool, "strict": bool(tool["strict"])}
