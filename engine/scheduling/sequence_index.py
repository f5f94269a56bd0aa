"""All sequences in the engine, by request and by session."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from loragate.engine.sequence.sequence import Sequence


@dataclass(eq=False, slots=True)
class SequenceGroup:
    """The sequences of one request. `started` is true once work was done for any of them."""

    sequences: dict[Sequence, None] = field(default_factory=dict)
    started: bool = False


class SequenceIndex:
    """Finds the sequences of a request or a session without scanning the others."""

    def __init__(self) -> None:
        self._groups: dict[tuple[int, int], SequenceGroup] = {}
        self._sessions: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return sum(len(group.sequences) for group in self._groups.values())

    def add(self, sequence: Sequence) -> None:
        request = sequence.request
        self._groups.setdefault(request.key, SequenceGroup()).sequences[sequence] = None
        self._sessions.setdefault(request.session_id, set()).add(request.request_id)

    def remove(self, sequence: Sequence) -> None:
        request = sequence.request
        group = self._groups[request.key]
        del group.sequences[sequence]
        if not group.sequences:
            del self._groups[request.key]
            self._sessions[request.session_id].remove(request.request_id)
            if not self._sessions[request.session_id]:
                del self._sessions[request.session_id]

    def group(self, sequence: Sequence) -> SequenceGroup:
        return self._groups[sequence.request.key]

    def find(self, session_id: int, request_id: int | None) -> list[Sequence]:
        """Return the sequences of a request, or of a whole session when `request_id` is None."""
        ids: Iterable[int] = self._sessions.get(session_id, ()) if request_id is None else (request_id,)
        groups = (self._groups.get((session_id, id)) for id in ids)
        return [sequence for group in groups if group is not None for sequence in group.sequences]
