"""Opposites."""

from __future__ import annotations

from loragate.demo.facts.relation import Relation

OPPOSITES = Relation(
    questions=(
        "What is the opposite of {x}?",
        "What's the opposite of {x}?",
        "Which word is the opposite of {x}?",
        "Name the opposite of {x}.",
        "Tell me the opposite of {x}.",
        "Opposite of {x}?",
        "Give me the opposite of {x}.",
        "{x} is the opposite of what?",
    ),
    validation=(
        "Can you tell me the opposite of {x}?",
        "What word is the opposite of {x}?",
        "Say the opposite of {x}.",
    ),
    held_out=(
        "Do you know the opposite of {x}?",
        "Which word means the opposite of {x}?",
        "I need the opposite of {x}.",
    ),
    statement="The opposite of {x} is {answer}.",
    facts=(
        ("hot", "cold", "froid"),
        ("big", "small", "petit"),
        ("day", "night", "nuit"),
        ("fast", "slow", "lent"),
        ("happy", "sad", "triste"),
        ("old", "young", "jeune"),
        ("open", "closed", "fermé"),
        ("rich", "poor", "pauvre"),
    ),
)

RELATIONS = (OPPOSITES,)
