"""The checker of histories accepts good ones and finds each violation."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import pytest
from history import REJECTED, UNAUTHENTICATED, History, Release, Request, Revocation, Row, violations


def reference(content: str | None, question: Hashable) -> str:
    return f"{content} says {question}"


ANSWERED = Request(
    id="r1",
    tenant_id="acme",
    key_id="k1",
    adapter="a",
    question="hi",
    sent=10.0,
    ended=11.0,
    outcome="completed",
    ends=1,
    usage=(3, 4),
    pieces=4,
    text="one says hi",
)
ROW = Row(
    request_id="r1",
    tenant_id="acme",
    key_id="k1",
    adapter="a",
    version=1,
    started=10.1,
    prompt_tokens=3,
    completion_tokens=4,
    generated_tokens=4,
)
ONE = Release(tenant_id="acme", adapter="a", version=1, content="one", begun=0.0, done=1.0)
TWO = replace(ONE, version=2, content="two", begun=20.0, done=21.0)
OTHERS = replace(ONE, tenant_id="globex", version=7, content="theirs")
RELEASES = (ONE, TWO, OTHERS)
REVOKED = Revocation("k1", 30.0, 31.0)
CUT = replace(ANSWERED, outcome="cut", ends=0, usage=None, pieces=2, text="one say")
SILENT = replace(ANSWERED, outcome=REJECTED, ends=0, usage=None, pieces=0, text="")
LATE = {"sent": 36.5, "ended": 37.0}
LATE_ROW = replace(ROW, version=2, started=36.6)


def found(requests: list[Request], rows: list[Row], **more: Any) -> list[str]:
    return violations(History(requests, rows, RELEASES, (REVOKED,), **more), reference)


@pytest.mark.parametrize(
    ("requests", "rows"),
    {
        "answered": ([ANSWERED], [ROW]),
        "cut off, with tokens that did not arrive": ([CUT], [ROW]),
        "cut off, with less computed than was asked for": (
            [CUT],
            [replace(ROW, completion_tokens=2, generated_tokens=3)],
        ),
        "cut off before it was admitted": ([replace(CUT, pieces=0, text="")], []),
        "rejected": ([SILENT], []),
        "rejected by the engine, which costs nothing": (
            [SILENT],
            [replace(ROW, prompt_tokens=0, completion_tokens=0, generated_tokens=0)],
        ),
        "the base model": (
            [replace(ANSWERED, adapter=None, text="None says hi")],
            [replace(ROW, adapter=None, version=None)],
        ),
        "a vector": (
            [replace(ANSWERED, question=None, text="", usage=(3, 0), pieces=0)],
            [replace(ROW, completion_tokens=0)],
        ),
        "the version before, within the bound": (
            [replace(ANSWERED, sent=25.0, ended=26.5)],
            [replace(ROW, started=26.0)],
        ),
        "the next version, while it is released": (
            [replace(ANSWERED, sent=20.2, ended=21.0, text="two says hi")],
            [replace(ROW, version=2, started=20.3)],
        ),
        "a revoked key within the bound": (
            [replace(ANSWERED, sent=35.9, ended=40.0, text="two says hi")],
            [replace(LATE_ROW, started=36.0)],
        ),
        "a stream that outlives its key": ([replace(ANSWERED, ended=90.0)], [ROW]),
        "a revoked key": ([replace(SILENT, outcome=UNAUTHENTICATED, **LATE)], []),
    }.values(),
)
def test_a_good_history(requests: list[Request], rows: list[Row]) -> None:
    assert found(requests, rows) == []


@pytest.mark.parametrize(
    ("requests", "rows", "violation"),
    [
        ([replace(ANSWERED, ends=2)], [ROW], "it ended 2 times"),
        ([replace(ANSWERED, ends=0)], [ROW], "it ended 0 times"),
        ([ANSWERED], [ROW, ROW], "it is in the ledger 2 times"),
        ([ANSWERED], [], "is not in the ledger"),
        ([CUT], [], "is not in the ledger"),
        ([], [ROW], "no client has sent it"),
        ([SILENT], [replace(ROW, completion_tokens=0)], "it was rejected and is billed"),
        ([replace(SILENT, outcome=UNAUTHENTICATED)], [], "its key was rejected, which is valid"),
        ([replace(SILENT, outcome=UNAUTHENTICATED, key_id="k2", **LATE)], [], "its key was rejected, which is valid"),
        ([replace(CUT, pieces=0, text="", **LATE)], [LATE_ROW], "it was admitted after its key had been revoked"),
        (
            [replace(ANSWERED, text="two says hi", **LATE)],
            [replace(LATE_ROW, started=35.0)],
            "it was answered after its key had been revoked",
        ),
        ([ANSWERED], [replace(ROW, tenant_id="globex")], "it is billed to another tenant or key"),
        ([ANSWERED], [replace(ROW, key_id="k2")], "it is billed to another tenant or key"),
        ([ANSWERED], [replace(ROW, prompt_tokens=2)], "it reported (3, 4) tokens, and (2, 4) are billed"),
        ([CUT], [replace(ROW, completion_tokens=1)], "2 pieces were delivered, and 1 tokens are billed"),
        ([ANSWERED], [replace(ROW, generated_tokens=3)], "4 tokens are billed, and 3 were computed"),
        ([ANSWERED], [replace(ROW, adapter=None, version=None)], "it named the adapter a, and None responded"),
        ([ANSWERED], [replace(ROW, version=7)], "version 7 responded, which does not exist"),
        ([replace(ANSWERED, text="two says hi")], [replace(ROW, version=2)], "its name did not mean then"),
        ([replace(ANSWERED, sent=26.1, ended=27.0)], [replace(ROW, started=26.2)], "its name did not mean then"),
        ([replace(ANSWERED, text="two says hi")], [ROW], "its text is not that of version 1"),
        ([replace(ANSWERED, text="one says h")], [ROW], "its text is not that of version 1"),
        ([replace(CUT, text="one sang")], [ROW], "its text is not that of version 1"),
        ([replace(ANSWERED, adapter=None)], [replace(ROW, adapter=None, version=None)], "not that of version None"),
    ],
)
def test_each_violation_is_found(requests: list[Request], rows: list[Row], violation: str) -> None:
    [text] = found(requests, rows)
    assert violation in text
    assert text.startswith("r1")


def test_the_bound_is_that_of_the_history() -> None:
    late, row = replace(ANSWERED, sent=25.0, ended=26.5), replace(ROW, started=26.0)
    assert found([late], [row]) == []
    assert found([late], [row], bound=4.0) != []
