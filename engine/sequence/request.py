"""What is kept of a request that its client traces, to tell it how long what took."""

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class RequestTrace:
    """`traceparent` is W3C's trace context. Times are time.monotonic()s."""

    traceparent: str
    begun: float | None = None  # the first step that computed some of it
    told: bool = False

    def tell(self, received: float, now: float) -> tuple[float, float] | None:
        """Seconds in the queue, and from there to the first of its answer, which is now; None when that was told."""
        if self.told or self.begun is None:
            return None
        self.told = True
        return self.begun - received, now - self.begun
