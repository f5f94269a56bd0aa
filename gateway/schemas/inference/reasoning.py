"""The types of the fields that control reasoning."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from loragate.prompts.bodies import ClientBody

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_MAX_BUDGET = (1 << 31) - 1
Budget = Annotated[int, Field(ge=0, le=_MAX_BUDGET)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
VariableValue = bool | int | float | Annotated[str, StringConstraints(max_length=256)] | None


class Thinking(ClientBody):
    """Anthropic's form of the switch and of the budget."""

    type: Literal["enabled", "disabled", "adaptive"] = "enabled"
    budget_tokens: Budget | None = None
