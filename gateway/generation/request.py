"""What the endpoints ask of the generation service."""

from collections.abc import Sequence
from dataclasses import dataclass

from loragate.gateway.generation.constraint import Constraint
from loragate.gateway.generation.target import Target
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.request_tools import ToolUse
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Checked: the prompts are not empty, in the vocabulary, and fit the context with `sampling.max_tokens`.

    The completions of prompt p have the indices p·n … p·n + n - 1.
    """

    target: Target
    base: BaseModel
    prompts: tuple[Sequence[int], ...]
    sampling: pb.Sampling
    n: int = 1
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    constraint: Constraint | None = None  # None: any text
    tools: ToolUse | None = None  # calls of these are read from the text
    draft_tokens: int = 0  # guessed a step, at most
    share: pb.Share | None = None  # whose turn it takes; absent: the tenant's, like any other of its requests
    open_ended: bool = False  # the caller named no limit: `sampling.max_tokens` is ours

    @property
    def prompt_tokens(self) -> int:
        """Each prompt counts once, whatever n is."""
        return sum(map(len, self.prompts))
