"""What the endpoints ask of the generation service."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loragate.adapter_store.adapters.adapter import ResolvedAdapter
from loragate.gateway.generation.constraint import Constraint
from loragate.gateway.text.base_model import BaseModel
from loragate.gateway.tools.message import ToolUse
from loragate.v1 import engine_pb2 as pb


@dataclass(frozen=True, slots=True)
class Target:
    """Resolved once; a request keeps its version until it ends, whatever happens to the alias."""

    tenant_id: str
    adapter: ResolvedAdapter | None

    @property
    def headers(self) -> dict[str, str]:
        """`x-loragate-adapter`, absent where the base model answers alone."""
        if self.adapter is None:
            return {}
        adapter = self.adapter
        return {"x-loragate-adapter": f"{adapter.name}:{adapter.version}@{adapter.digest}"}

    @property
    def reference(self) -> pb.AdapterRef | None:
        """The adapter as the engine asks for it."""
        if self.adapter is None:
            return None
        return pb.AdapterRef(tenant_id=self.tenant_id, digest=self.adapter.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True)
class PoolingRequest:
    """Checked: the prompts are not empty, in the vocabulary, and fit the context."""

    target: Target
    prompts: tuple[Sequence[int], ...]
    pooling: pb.Pooling
    share: pb.Share

    @property
    def prompt_tokens(self) -> int:
        return sum(map(len, self.prompts))


@dataclass(frozen=True, slots=True)
class Embedding:
    """Of prompt `index`."""

    index: int
    vector: npt.NDArray[np.float32]  # [hidden size], not normalised
