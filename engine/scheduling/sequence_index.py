"""Everyone in the engine, by request and by session."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from loragate.engine.sequence.sequence import Sequence


@dataclass(eq=False, slots=True)
class Party:
    """The sequences of one request. `started`: work was done for one of them."""

    sequences: dict[Sequence, None] = field(default_factory=dict)
    started: bool = False


class Roster:
    """Finds the sequences of a request or a session without looking at the others."""

    def __init__(self) -> None:
        self._parties: dict[tuple[int, int], Party] = {}
        self._sessions: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return sum(len(party.sequences) for party in self._parties.values())

    def add(self, sequence: Sequence) -> None:
        request = sequence.request
        self._parties.setdefault(request.key, Party()).sequences[sequence] = None
        self._sessions.setdefault(request.session_id, set()).add(request.request_id)

    def remove(self, sequence: Sequence) -> None:
        request = sequence.request
        party = self._parties[request.key]
        del party.sequences[sequence]
        if not party.sequences:
            del self._parties[request.key]
            self._sessions[request.session_id].remove(request.request_id)
            if not self._sessions[request.session_id]:
                del self._sessions[request.session_id]

    def party(self, sequence: Sequence) -> Party:
        return self._parties[sequence.request.key]

    def find(self, session_id: int, request_id: int | None) -> list[Sequence]:
        """The sequences of a request, or of a whole session when `request_id` is None."""
        ids: Iterable[int] = self._sessions.get(session_id, ()) if request_id is None else (request_id,)
        parties = (self._parties.get((session_id, id)) for id in ids)
        return [sequence for party in parties if party is not None for sequence in party.sequences]
