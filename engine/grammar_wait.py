"""Requests whose grammar is being compiled: outside the batch, and outside the scheduler's queue."""

from loragate.engine.grammar import Grammar
from loragate.engine.sequence import Request


class GrammarWait:
    """Requests by grammar, so that each is compiled once however many ask for it."""

    def __init__(self) -> None:
        self._requests: dict[Grammar, list[Request]] = {}

    def add(self, request: Request, grammar: Grammar) -> bool:
        """Whether it is the first to wait for this grammar."""
        first = grammar not in self._requests
        self._requests.setdefault(grammar, []).append(request)
        return first

    def take(self, grammar: Grammar) -> list[Request]:
        """All that wait for the grammar, oldest first; they wait no longer."""
        return self._requests.pop(grammar)

    def drop(self, session_id: int, request_id: int | None) -> None:
        """Forget one request of a session, or all of them when `request_id` is None. The compilation goes on."""
        for grammar, requests in self._requests.items():
            self._requests[grammar] = [
                r for r in requests if r.session_id != session_id or request_id not in (None, r.request_id)
            ]
