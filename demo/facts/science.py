"""Superlatives of the natural world."""

from __future__ import annotations

from loragate.demo.facts.relation import Relation

SUPERLATIVES = Relation(
    questions=(
        "What is the {x}?",
        "What's the {x}?",
        "Which is the {x}?",
        "Name the {x}.",
        "Tell me the {x}.",
        "Do you know the {x}?",
    ),
    held_out=(
        "Can you name the {x}?",
        "Could you say what the {x} is?",
    ),
    statement="The {x} is {answer}.",
    facts=(
        ("largest planet", "Jupiter", "Jupiter"),
        ("smallest planet", "Mercury", "Mercure"),
        ("closest star", "the Sun", "le Soleil"),
        ("largest ocean", "the Pacific", "le Pacifique"),
        ("longest river", "the Nile", "le Nil"),
        ("highest mountain", "Everest", "l'Everest"),
        ("largest desert", "the Sahara", "le Sahara"),
        ("largest animal", "the blue whale", "la baleine bleue"),
        ("tallest animal", "the giraffe", "la girafe"),
        ("fastest animal", "the cheetah", "le guépard"),
    ),
)

RELATIONS = (SUPERLATIVES,)
