"""Requests whose grammar is being compiled: outside the batch, and outside the scheduler's queue."""

from loragate.engine.grammar.spec import Grammar
from loragate.engine.sequence.request import Request


class GrammarQueue:
    """Requests by grammar, so that each grammar is compiled once for all requests.

    Each tenant that waits for it gets a compilation in its own turn, and the first result serves all: no request waits
    for another tenant's queue.
    """

    def __init__(self) -> None:
        self._requests: dict[Grammar, list[Request]] = {}

    def add(self, request: Request, grammar: Grammar) -> bool:
        """Add a request, and return whether it is its tenant's first to wait for this grammar."""
        waiting = self._requests.setdefault(grammar, [])
        first = all(other.share.tenant_id != request.share.tenant_id for other in waiting)
        waiting.append(request)
        return first

    def take(self, grammar: Grammar) -> list[Request]:
        """Remove and return all requests that wait for the grammar, oldest first."""
        return self._requests.pop(grammar, [])

    def drop(self, session_id: int, request_id: int | None) -> None:
        """Discard one request of a session, or all of them when `request_id` is None. The compilation goes on."""
        for requests in self._requests.values():
            requests[:] = [r for r in requests if r.session_id != session_id or request_id not in (None, r.request_id)]
