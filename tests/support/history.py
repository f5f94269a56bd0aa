"""Checks a recorded history of a serving system: what clients asked and received, and what the ledger says of it.

Though processes are killed, every admitted request ends exactly once, the ledger has what was delivered and computed,
nothing of a revoked key is admitted after the bound, and each token is that of the adapter version which the request
named. Times are seconds of one clock.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

COMPLETED = "completed"
REJECTED = "rejected"
UNAUTHENTICATED = "unauthenticated"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as its client saw it.

    `outcome` is one of the above, or how it was cut off. `ends` counts how often the response said that it had ended,
    `usage` has the prompt and completion tokens that it reported, `pieces` counts those of its text. `adapter` is the
    name that was asked for; None for the base model. `question` is what the reference takes; None if the response is no
    text.
    """

    id: str
    tenant_id: str
    key_id: str
    adapter: str | None
    question: Hashable | None
    sent: float
    ended: float
    outcome: str
    ends: int = 0
    usage: tuple[int, int] | None = None
    pieces: int = 0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the ledger; `started` is when the request was admitted."""

    request_id: str
    tenant_id: str
    key_id: str
    adapter: str | None
    version: int | None
    started: float
    prompt_tokens: int
    completion_tokens: int
    generated_tokens: int


@dataclass(frozen=True, kw_only=True)
class Release:
    """A version that became the one which an adapter's name means, at some time between `begun` and `done`."""

    tenant_id: str
    adapter: str
    version: int
    content: str
    begun: float
    done: float


@dataclass(frozen=True)
class Revocation:
    """A key that was revoked between `begun` and `done`."""

    key_id: str
    begun: float
    done: float


@dataclass(frozen=True)
class History:
    """`bound` is the time in seconds after which every change applies."""

    requests: Sequence[Request]
    rows: Sequence[Row]
    releases: Sequence[Release] = ()
    revocations: Sequence[Revocation] = ()
    bound: float = 5.0


Reference = Callable[[str | None, Hashable], str]
"""Returns the whole text of the response to a question, by the adapter with this content; None for the base model."""


def violations(history: History, reference: Reference) -> list[str]:
    """Return a description of each violation; an empty list if the history is as it should be."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in history.rows:
        rows[row.request_id].append(row)
    revoked = {each.key_id: each for each in history.revocations}
    found: list[str] = []
    for request in history.requests:
        mine = rows.pop(request.id, [])
        problems = [*_ends(request, mine), *_admission(request, mine, revoked.get(request.key_id), history.bound)]
        for row in mine[:1]:
            problems += [*_amounts(request, row), *_version(request, row, history, reference)]
        found += [f"{request.id} ({request.outcome}): {problem}" for problem in problems]
    return found + [f"{request_id} is in the ledger, but no client has sent it" for request_id in rows]


def _ends(request: Request, rows: Sequence[Row]) -> Iterator[str]:
    if request.ends > 1 or (request.outcome == COMPLETED and request.ends == 0):
        yield f"it ended {request.ends} times"
    if len(rows) > 1:
        yield f"it is in the ledger {len(rows)} times"
    if not rows and (request.usage is not None or request.pieces):
        yield "it was answered and is not in the ledger"


def _admission(request: Request, rows: Sequence[Row], revocation: Revocation | None, bound: float) -> Iterator[str]:
    if request.outcome in (REJECTED, UNAUTHENTICATED) and any(row.prompt_tokens for row in rows):
        yield "it was rejected and is billed"
    if request.outcome == UNAUTHENTICATED and (revocation is None or request.ended < revocation.begun):
        yield "its key was rejected, which is valid"
    if revocation is None:
        return
    if any(row.started > revocation.done + bound for row in rows):
        yield "it was admitted after its key had been revoked"
    if request.sent > revocation.done + bound and (request.outcome == COMPLETED or request.pieces):
        yield "it was answered after its key had been revoked"


def _amounts(request: Request, row: Row) -> Iterator[str]:
    billed = (row.prompt_tokens, row.completion_tokens)
    if (row.tenant_id, row.key_id) != (request.tenant_id, request.key_id):
        yield f"it is billed to another tenant or key: {row}"
    if request.usage is not None and billed != request.usage:
        yield f"it reported {request.usage} tokens, and {billed} are billed"
    if row.completion_tokens < request.pieces:
        yield f"{request.pieces} pieces were delivered, and {row.completion_tokens} tokens are billed"
    if row.completion_tokens > row.generated_tokens:
        yield f"{row.completion_tokens} tokens are billed, and {row.generated_tokens} were computed"


def _version(request: Request, row: Row, history: History, reference: Reference) -> Iterator[str]:
    if row.adapter != request.adapter:
        yield f"it named the adapter {request.adapter}, and {row.adapter} responded"
        return
    content = None
    if request.adapter is not None:
        name = (request.tenant_id, request.adapter)
        releases = [each for each in history.releases if (each.tenant_id, each.adapter) == name]
        mine = [each for each in releases if each.version == row.version]
        if not mine:
            yield f"version {row.version} responded, which does not exist"
            return
        content = mine[0].content
        replaced = min((each.done for each in releases if each.begun > mine[0].done), default=float("inf"))
        if request.ended < mine[0].begun or row.started > replaced + history.bound:
            yield f"version {row.version} responded, which its name did not mean then"
    if request.question is not None:
        right = reference(content, request.question)
        if request.text != right if request.outcome == COMPLETED else not right.startswith(request.text):
            yield f"its text is not that of version {row.version}: {request.text!r} in place of {right!r}"
