"""forward_backwards of several runs, computed together in steps of bounded length, between which others have turns."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from loragate.trainer.adapter import Adapter, Buffer
from loragate.trainer.base_model import BaseModel
from loragate.trainer.errors import TrainingRejected
from loragate.trainer.optimizer import gradient_norm
from loragate.trainer.packing import Work, cut, pack
from loragate.trainer.request import DatumResults, ForwardBackward, ForwardBackwardResult


@dataclass(frozen=True, slots=True)
class NextStep:
    """A step that will be computed: its tokens by run, and whether it has a backward pass."""

    tokens: Mapping[str, int]
    train: bool


class Computation:
    """The requests in `results`, without those that it has rejected already. `adapters` are those of their runs, whose
    optimizer steps must not be run before the end."""

    def __init__(
        self,
        base: BaseModel,
        adapters: Mapping[str, Adapter],
        requests: Sequence[ForwardBackward],
        results: DatumResults,
        max_step_rows: int,
    ) -> None:
        self._base = base
        self._adapters = adapters
        self._requests = requests
        self._results = results
        self._max_step_rows = max_step_rows
        self._steps = self._run()
        self.next_step: NextStep | None = None
        """The step that `advance` will compute; None at the end."""
        self.advance()

    def advance(self) -> None:
        """Compute the next step."""
        self.next_step = next(self._steps, None)

    def results(self) -> list[ForwardBackwardResult | TrainingRejected]:
        """Return the results after the last step. A request that failed left its run's gradient as it was."""
        assert self.next_step is None, "steps are left"
        return [self._results.result(index) for index in range(len(self._requests))]

    def _run(self) -> Iterator[NextStep]:
        """Yield each step, and compute it when the next one is asked for."""
        sound = [index for index in range(len(self._requests)) if index not in self._results.errors]
        forward_only = [index for index in sound if self._requests[index].forward_only]
        yield from self._compute([each for i in forward_only for each in self._work(i, None)], train=False)
        for turn in _turns(self._requests, [i for i in sound if not self._requests[i].forward_only]):
            yield from self._train(turn)

    def _train(self, turn: Sequence[int]) -> Iterator[NextStep]:
        """Compute requests of different runs, and keep the gradients of those that succeed."""
        gradients = {i: self._adapter(i).working_gradient() for i in turn}
        yield from self._compute([each for i in turn for each in self._work(i, gradients[i])], train=True)
        for index in turn:
            if index not in self._results.errors and not math.isfinite(gradient_norm(gradients[index].flat)):
                words = "data: the gradient is not finite; no gradient of this request was kept"
                self._results.fail(index, words)
            if index not in self._results.errors:
                self._adapter(index).gradient = gradients[index]

    def _compute(self, work: Sequence[Work], *, train: bool) -> Iterator[NextStep]:
        for items in cut(work, self._max_step_rows):
            tokens: Counter[str] = Counter()
            for each in items:
                tokens[self._requests[each.request].run_id] += len(each.datum.tokens)
            yield NextStep(tokens, train)
            self._base.compute(pack(items, self._base.device), self._results, train=train)

    def _work(self, index: int, gradient: Buffer | None) -> list[Work]:
        factors, adapter = None if gradient is None else gradient.factors, self._adapter(index)
        data = self._requests[index].data
        return [Work(index, place, datum, adapter, factors) for place, datum in enumerate(data)]

    def _adapter(self, index: int) -> Adapter:
        return self._adapters[self._requests[index].run_id]


def _turns(requests: Sequence[ForwardBackward], indices: Sequence[int]) -> list[list[int]]:
    """Return the requests in turns, of which each has at most one of a run, in each run's order."""
    turns: list[list[int]] = []
    counts: dict[str, int] = {}
    for index in indices:
        turn = counts.get(requests[index].run_id, 0)
        counts[requests[index].run_id] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(index)
    return turns
