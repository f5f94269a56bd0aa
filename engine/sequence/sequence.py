"""Sequences: one completion each, in progress."""

import itertools
import sys
from collections import abc
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from loragate.engine.grammar.matcher import Matcher
from loragate.engine.sequence.output import Computed
from loragate.engine.sequence.pooling import PooledStates
from loragate.engine.sequence.prefix_path import PrefixPath
from loragate.engine.sequence.prompt_logprobs import PromptScoring
from loragate.engine.sequence.prompt_lookup import PromptLookup
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.token_counts import TokenCounts

NEVER = sys.maxsize


@dataclass(frozen=True, slots=True)
class SlotLease:
    """A sequence's hold on a device slot.

    The generation distinguishes a slot that was given away from the one leased. `invocation` are the tokens that
    activate the adapter there, if it has any.
    """

    slot: int
    generation: int
    invocation: tuple[int, ...] | None = None


_arrivals = itertools.count()


@dataclass(eq=False, slots=True)
class Sequence:
    """One completion: its tokens, and how many of them are in the KV cache, and where."""

    request: Request
    index: int
    matcher: Matcher | None = None  # of the request's thought and grammar; it outlives preemptions, as the tokens do
    tokens: list[int] = field(init=False)  # the last may not be known yet
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    places: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lease: SlotLease | None = None
    arrival: int = field(default_factory=lambda: next(_arrivals))
    adapter_from: int = 0  # the position from which the adapter is in effect, determined by the original prompt
    path: PrefixPath = field(init=False)
    lookup: PromptLookup | None = field(init=False)
    pooled: PooledStates | None = field(init=False)  # none if it gets no embedding
    scoring: PromptScoring | None = field(init=False)  # none if its prompt's logprobs are not wanted
    draft: list[int] = field(default_factory=list)  # draft tokens that this step computes after its last token
    accepted: int = 0  # draft tokens accepted so far
    counts: TokenCounts | None = None  # the counts of its tokens, if penalties need them
    max_computed: int = 0  # the most tokens it ever had in the KV cache; a preemption does not reset it
    cached_tokens: int = 0  # prompt tokens that were found in the cache

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        pooling, drafts = self.request.pooling, self.request.draft_tokens
        needs_all_states = pooling is not None and pooling.takes_all  # which cached blocks do not have
        self.pooled = None if pooling is None else PooledStates(pooling, self.prompt_length)
        top = self.request.prompt_logprobs if self.index == 0 else None  # they are the same for all completions
        self.scoring = None if top is None else PromptScoring(top, self.prompt_length)
        self.path = PrefixPath(
            open=bool(self.request.cache_salt) and not needs_all_states,
            counted=self.scoring is not None,  # its prompt is not looked up
        )
        self.lookup = PromptLookup(drafts) if drafts and self.generates else None

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt)

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def generates(self) -> bool:
        """Whether tokens follow its prompt."""
        return self.pooled is None and self.request.sampling.max_tokens > 0

    @property
    def reusable_tokens(self) -> int:
        """The tokens from the start that may come from the prefix cache: not the last one, whose logits are needed, nor
        those whose states are still to be scored."""
        whole = len(self.tokens) - 1
        return whole if self.scoring is None or self.scoring.complete else min(whole, self.scoring.scored)

    def scored_states(self, start: int, stop: int) -> range:
        """Return those of the tokens [start, stop) whose states are scored when they are computed."""
        return range(0) if self.scoring is None else self.scoring.wanted(start, stop)

    def scorable_tokens(self, states: int) -> int:
        """Return how many of the remaining tokens may be computed next if at most so many states may be scored."""
        wanted = self.scored_states(self.computed, len(self.tokens))
        return self.remaining if len(wanted) <= states else wanted.start + states - self.computed

    @property
    def usage(self) -> Computed:
        """What was computed for it so far."""
        prompt = min(self.prompt_length, max(self.computed, self.max_computed))
        return Computed(prompt - self.cached_tokens, self.cached_tokens, self.generated)

    @property
    def unread(self) -> bool:
        """Whether its last token was chosen but is not known to the host yet, see LastTokens."""
        return self.tokens[-1] < 0

    @property
    def wants_draft(self) -> bool:
        """Whether its next step begins with draft tokens after its last token, which must be known for that."""
        return self.lookup is not None and not self.lookup.pausing

    def propose_draft(self, room: int) -> list[int]:
        """Return draft tokens, at most `room` and no more than it may still generate."""
        if self.lookup is None:
            return []
        room = min(room, self.request.sampling.max_tokens - self.generated - 1)
        return self.lookup.propose(self.tokens)[: max(0, room)]

    def finish_draft(self) -> None:
        """Record the result of the draft and clear it."""
        assert self.lookup is not None
        self.lookup.record_acceptance(self.accepted)
        self.draft, self.accepted = [], 0

    @property
    def remaining(self) -> int:
        """Tokens that must go through the model before the next one can be sampled; 1 while decoding."""
        return len(self.tokens) - self.computed

    def hold(self, lease: SlotLease) -> None:
        """Take the adapter's slot, which determines where in the prompt the adapter comes into effect."""
        self.lease = lease
        if lease.invocation is not None and self.adapter_from == 0:
            start = active_from(lease.invocation, self.request.prompt)
            assert start == 0 or not self.path.hashes, "no block is looked up before it is known whose it is"
            self.adapter_from = start

    def adapter_at(self, position: int) -> AdapterKey | None:
        """Return the adapter in effect for the token at `position`; None is the base model."""
        return self.request.adapter if position >= self.adapter_from else None

    @property
    def slot(self) -> int:
        """The leased slot; −1 is the base model."""
        return -1 if self.lease is None else self.lease.slot


def active_from(invocation: abc.Sequence[int], prompt: abc.Sequence[int]) -> int:
    """Return the position at which the invocation tokens last begin in the prompt.

    It is NEVER if they do not occur in the prompt, even if they are generated later.
    """
    first, length = invocation[0], len(invocation)
    for start in range(len(prompt) - length, -1, -1):
        if prompt[start] == first and tuple(prompt[start : start + length]) == tuple(invocation):
            return start
    return NEVER
