"""Requests whose grammar is being compiled: outside the batch, and outside the scheduler's queue."""

from loragate.engine.grammar.spec import Grammar
from loragate.engine.sequence.request import Request


class GrammarQueue:
    """Requests by tenant and grammar, so that each grammar is compiled once for all requests of a tenant.

    No request gets the result of another tenant's compilation: it would learn that somebody uses the same grammar.
    """

    def __init__(self) -> None:
        self._requests: dict[tuple[str, Grammar], list[Request]] = {}

    def add(self, request: Request, grammar: Grammar) -> bool:
        """Add a request, and return whether it is its tenant's first to wait for this grammar."""
        waiting = self._requests.setdefault((request.share.tenant_id, grammar), [])
        waiting.append(request)
        return len(waiting) == 1

    def has(self, tenant_id: str, grammar: Grammar) -> bool:
        """Return whether a request of the tenant waits for the grammar. Thread-safe."""
        return (tenant_id, grammar) in self._requests

    def take(self, tenant_id: str, grammar: Grammar) -> list[Request]:
        """Remove and return all requests of the tenant that wait for the grammar, oldest first."""
        return self._requests.pop((tenant_id, grammar), [])

    def drop(self, session_id: int, request_id: int | None) -> list[Request]:
        """Remove and return one request of a session, or all of them when `request_id` is None. A grammar for which no
        request waits any more is removed too."""
        dropped = []
        for key, requests in list(self._requests.items()):
            ours = [r for r in requests if r.session_id == session_id and request_id in (None, r.request_id)]
            for request in ours:
                requests.remove(request)
            if not requests:
                del self._requests[key]
            dropped += ours
        return dropped
