"""An engine that records the times of its requests."""

import time
from typing import Any

from loragate.engine.local import LocalEngine
from loragate.engine.sequence.output import Output


class TimedEngine(LocalEngine):
    """Records the times of each request's submission, first token and end."""

    def __init__(self, *arguments: Any, **config: Any) -> None:
        self.submitted: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.done: dict[int, float] = {}
        super().__init__(*arguments, **config)

    def submit(self, *arguments: Any, **options: Any) -> int:
        now = time.perf_counter()
        request = super().submit(*arguments, **options)
        self.submitted[request] = now
        return request

    def _emit(self, outputs: list[Output]) -> None:
        now = time.perf_counter()
        for output in outputs:
            assert output.error is None, output.error
            self.first.setdefault(output.request.request_id, now)
            if output.finish is not None:
                self.done[output.request.request_id] = now
        super()._emit(outputs)
