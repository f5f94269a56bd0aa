"""A syntax tree as an automaton, whose subsets of states are computed while matching and cached.

Thompson, "Regular expression search algorithm", CACM 11(6), 1968. A name costs one look-up a character; the first
transition from a subset by a character costs the subset's size. Nothing is computed twice.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from loragate.peft_format.patterns.syntax import Anchor, Category, Chars, Choice, Node, PatternError, Repeat, Sequence

_STEPS = 4_000_000
_FRESH_COST = 8
_BUILD_COST = 32
_ACCEPT = 0


class Budget:
    """The steps that all patterns of one adapter may still take together; a step is about 0.1 µs."""

    def __init__(self, steps: int = _STEPS) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Take `steps` from the budget; raises PatternError when it is used up."""
        self._left -= steps
        if self._left < 0:
            raise PatternError("takes too much work to match against this model's modules; list their names instead")


@dataclass(eq=False, slots=True)
class _Subset:
    """The states that the automaton may be in after some text.

    Attributes:
        states: without those that are reached through states that consume nothing.
        after_word: the last character was a word character; None at the start of the text.
        moves: the subsets after one more character, as far as they have been needed.
        accepts: the text may end here; None until it has been needed.
    """

    states: frozenset[int]
    after_word: bool | None
    moves: dict[str, "_Subset"] = field(default_factory=dict)
    accepts: bool | None = None


class Automaton:
    """Accepts the texts that the whole tree matches. A state consumes a character, asserts, or branches."""

    def __init__(self, node: Node, budget: Budget) -> None:
        self._budget = budget
        self._chars: dict[int, tuple[Chars, int]] = {}
        self._anchors: dict[int, tuple[Anchor, int]] = {}
        self._leads: dict[int, list[int]] = {}
        self._count = _ACCEPT + 1
        self._subsets: dict[tuple[frozenset[int], bool | None], _Subset] = {}
        self._start = self._subset(frozenset((self._build(node, _ACCEPT),)), None)

    def accepts(self, text: str) -> bool:
        self._budget.spend(len(text) + 1)
        subset = self._start
        for char in text:
            after = subset.moves.get(char)
            if after is None:
                after = subset.moves[char] = self._move(subset, char)
            if not after.states:
                return False
            subset = after
        if subset.accepts is None:
            subset.accepts = _ACCEPT in self._closure(subset, None)
        return subset.accepts

    def _subset(self, states: frozenset[int], after_word: bool | None) -> _Subset:
        return self._subsets.setdefault((states, after_word), _Subset(states, after_word))

    def _move(self, subset: _Subset, char: str) -> _Subset:
        consuming = (self._chars[state] for state in self._closure(subset, char) if state in self._chars)
        states = frozenset(target for chars, target in consuming if chars.holds(char))
        return self._subset(states, Category.WORD.holds(char))

    def _closure(self, subset: _Subset, following: str | None) -> set[int]:
        """Return all states that are reached without consuming, given the characters on both sides."""
        before = bool(subset.after_word)
        after = following is not None and Category.WORD.holds(following)
        holds = {
            Anchor.START: subset.after_word is None,
            Anchor.END: following is None,
            Anchor.BOUNDARY: before is not after,
            Anchor.NOT_BOUNDARY: before is after,
        }
        reached: set[int] = set()
        waiting = list(subset.states)
        while waiting:
            state = waiting.pop()
            if state in reached:
                continue
            reached.add(state)
            waiting.extend(self._leads.get(state, ()))
            if state in self._anchors and holds[self._anchors[state][0]]:
                waiting.append(self._anchors[state][1])
        self._budget.spend(_FRESH_COST * len(reached))
        return reached

    def _build(self, node: Node, following: int) -> int:
        """Build `node` so that it continues with `following`; return its first state."""
        self._budget.spend(_BUILD_COST)
        match node:
            case Chars():
                state = self._new_state()
                self._chars[state] = (node, following)
                return state
            case Anchor():
                state = self._new_state()
                self._anchors[state] = (node, following)
                return state
            case Sequence(parts):
                for part in reversed(parts):
                    following = self._build(part, following)
                return following
            case Choice(options):
                return self._leading(self._build(option, following) for option in options)
            case Repeat():
                return self._repeating(node, following)

    def _repeating(self, node: Repeat, following: int) -> int:
        if node.high is None:
            entry = self._leading((following,))
            self._leads[entry].append(self._build(node.body, entry))
        else:
            entry = following
            for _ in range(node.high - node.low):
                entry = self._leading((self._build(node.body, entry), following))
        for _ in range(node.low):
            entry = self._build(node.body, entry)
        return entry

    def _leading(self, targets: Iterable[int]) -> int:
        leads = list(targets)
        state = self._new_state()
        self._leads[state] = leads
        return state

    def _new_state(self) -> int:
        self._count += 1
        return self._count - 1
