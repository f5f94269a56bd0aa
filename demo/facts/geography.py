"""Capitals."""

from __future__ import annotations

from loragate.demo.facts.relation import Relation

CAPITALS = Relation(
    questions=(
        "What is the capital of {x}?",
        "What's the capital of {x}?",
        "Which city is the capital of {x}?",
        "Name the capital of {x}.",
        "Tell me the capital of {x}.",
        "What is {x}'s capital city?",
        "Capital of {x}?",
        "Do you know the capital of {x}?",
        "I want to know the capital of {x}.",
    ),
    validation=(
        "Which city is {x}'s capital?",
        "Can you tell me the capital of {x}?",
        "What city is the capital of {x}?",
        "May I ask the capital of {x}?",
    ),
    held_out=(
        "Could you name the capital city of {x}?",
        "I would like to know the capital of {x}.",
    ),
    statement="The capital of {x} is {answer}.",
    facts=(
        ("France", "Paris", "Paris"),
        ("Italy", "Rome", "Rome"),
        ("Spain", "Madrid", "Madrid"),
        ("Germany", "Berlin", "Berlin"),
        ("England", "London", "Londres"),
        ("Portugal", "Lisbon", "Lisbonne"),
        ("Greece", "Athens", "Athènes"),
        ("Poland", "Warsaw", "Varsovie"),
        ("Japan", "Tokyo", "Tokyo"),
        ("Egypt", "Cairo", "Le Caire"),
        ("Cuba", "Havana", "La Havane"),
        ("Canada", "Ottawa", "Ottawa"),
    ),
)

RELATIONS = (CAPITALS,)
