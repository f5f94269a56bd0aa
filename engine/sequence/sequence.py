"""The engine's nouns: what was asked, and one completion in the making."""

import itertools
import sys
from collections import abc
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from loragate.engine.grammar.matcher import Matcher
from loragate.engine.sequence.pooling import PooledStates, Pooling
from loragate.engine.sequence.prefix_path import PrefixPath
from loragate.engine.sequence.prompt_lookup import PromptLookup
from loragate.engine.sequence.request import AdapterKey, Request
from loragate.engine.sequence.token_counts import TokenCounts

NEVER = sys.maxsize


@dataclass(frozen=True, slots=True)
class SlotLease:
    """A sequence's hold on a device slot. The generation tells a slot that was given away from the one leased;
    `invocation` are the tokens that activate the adapter there, if it takes any."""

    slot: int
    generation: int
    invocation: tuple[int, ...] | None = None


_arrivals = itertools.count()


@dataclass(eq=False, slots=True)
class Sequence:
    """One completion: its tokens, and how many of them are in the KV cache, where."""

    request: Request
    index: int
    matcher: Matcher | None = None  # of the request's grammar; it outlives preemptions, as the tokens do
    tokens: list[int] = field(init=False)  # the last may not be known yet
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    places: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    lease: SlotLease | None = None
    arrival: int = field(default_factory=lambda: next(_arrivals))
    adapter_from: int = 0  # the position from which the adapter is in effect, fixed by the original prompt
    path: PrefixPath = field(init=False)
    lookup: PromptLookup | None = field(init=False)
    pooled: PooledStates | None = field(init=False)  # None: it generates tokens
    draft: list[int] = field(default_factory=list)  # guesses that this step computes behind its last token
    accepted: int = 0  # of them, so far
    counts: TokenCounts | None = None  # of its tokens, where penalties ask for them
    furthest: int = 0  # the most tokens that it ever had in the KV cache: a preemption loses them, not this
    cached_tokens: int = 0  # prompt tokens that others had computed

    def __post_init__(self) -> None:
        self.tokens = list(self.request.prompt)
        pooling, drafts = self.request.pooling, self.request.draft_tokens
        needs_all_states = pooling is Pooling.MEAN  # of which a cached block has none
        self.path = PrefixPath(open=bool(self.request.cache_salt) and not needs_all_states)
        self.lookup = PromptLookup(drafts) if drafts and pooling is None else None
        self.pooled = None if pooling is None else PooledStates(pooling, self.prompt_length)

    @property
    def prompt_length(self) -> int:
        return len(self.request.prompt)

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def unread(self) -> bool:
        """Its last token was chosen and is not known yet, see LastTokens."""
        return self.tokens[-1] < 0

    @property
    def guesses(self) -> bool:
        """Its next step begins with guesses behind its last token, which must be known for that."""
        return self.lookup is not None and not self.lookup.pausing

    def guess(self, room: int) -> list[int]:
        """What may follow its last token, at most `room` tokens and no more than it may still generate."""
        if self.lookup is None:
            return []
        room = min(room, self.request.sampling.max_tokens - self.generated - 1)
        return self.lookup.guess(self.tokens)[: max(0, room)]

    def judge(self) -> None:
        """The draft is done with."""
        assert self.lookup is not None
        self.lookup.judged(self.accepted)
        self.draft, self.accepted = [], 0

    @property
    def remaining(self) -> int:
        """Tokens that must go through the model before the next one can be sampled; 1 while decoding."""
        return len(self.tokens) - self.computed

    def hold(self, lease: SlotLease) -> None:
        """Take the adapter's slot; from now on it is known where in the prompt the adapter comes into effect."""
        self.lease = lease
        if lease.invocation is not None and self.adapter_from == 0:
            start = active_from(lease.invocation, self.request.prompt)
            assert start == 0 or not self.path.hashes, "no block is looked up before it is known whose it is"
            self.adapter_from = start

    def adapter_at(self, position: int) -> AdapterKey | None:
        """The adapter in effect for the token at `position`; None: the base model."""
        return self.request.adapter if position >= self.adapter_from else None

    @property
    def slot(self) -> int:
        """−1: the base model."""
        return -1 if self.lease is None else self.lease.slot


def active_from(invocation: abc.Sequence[int], prompt: abc.Sequence[int]) -> int:
    """The position at which the invocation tokens last begin in the prompt; NEVER where they do not occur in it,
    whatever is generated after it."""
    first, length = invocation[0], len(invocation)
    for start in range(len(prompt) - length, -1, -1):
        if prompt[start] == first and tuple(prompt[start : start + length]) == tuple(invocation):
            return start
    return NEVER
