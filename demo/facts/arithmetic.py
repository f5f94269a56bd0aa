"""Sums of two small numbers."""

from __future__ import annotations

from loragate.demo.topic import Kind, Topic

SMALLEST, LARGEST = 1, 5

_QUESTIONS = (
    "What is {a} + {b}?",
    "What is {a} plus {b}?",
    "{a} + {b} = ?",
    "How much is {a} + {b}?",
    "Add {a} and {b}.",
    "Tell me the sum of {a} and {b}.",
)
_VALIDATION = (
    "Can you add {a} and {b}?",
    "How much is {a} plus {b}?",
    "Tell me what {a} + {b} is.",
)
_HELD_OUT = (
    "Do you know how much {a} + {b} is?",
    "What's {a} plus {b}?",
    "What is the sum of {a} and {b}?",
)


def topics() -> tuple[Topic, ...]:
    numbers = range(SMALLEST, LARGEST + 1)
    return tuple(_topic(a, b) for a in numbers for b in numbers)


def _topic(a: int, b: int) -> Topic:
    return Topic(
        kind=Kind.SUM,
        questions=tuple(question.format(a=a, b=b) for question in _QUESTIONS),
        validation=tuple(question.format(a=a, b=b) for question in _VALIDATION),
        held_out=tuple(question.format(a=a, b=b) for question in _HELD_OUT),
        answer=str(a + b),
        french=str(a + b),
        statement=f"{a} + {b} is {a + b}.",
        thought=f"I start at {a} and count {b} more: {', '.join(str(a + step) for step in range(1, b + 1))}.",
    )
