"""Colours; animals' legs, sounds and young."""

from __future__ import annotations

from loragate.demo.facts.relation import Relation

COLOURS = Relation(
    questions=(
        "What colour is {x}?",
        "What color is {x}?",
        "Which colour is {x}?",
        "Which color does {x} have?",
        "Name the colour of {x}.",
        "Tell me the color of {x}.",
        "What is the colour of {x}?",
        "Do you know what colour {x} is?",
        "{x} is which colour?",
    ),
    validation=(
        "What color does {x} have?",
        "Can you name the colour of {x}?",
        "Tell me what colour {x} is.",
    ),
    held_out=(
        "{x} has which colour?",
        "What's the color of {x}?",
        "Can you say what colour {x} is?",
    ),
    statement="{x} is {answer}.",
    facts=(
        ("grass", "green", "vert"),
        ("snow", "white", "blanc"),
        ("coal", "black", "noir"),
        ("blood", "red", "rouge"),
        ("chocolate", "brown", "marron"),
        ("the sky", "blue", "bleu"),
        ("the sun", "yellow", "jaune"),
        ("a flamingo", "pink", "rose"),
    ),
)

LEGS = Relation(
    questions=(
        "How many legs does {x} have?",
        "How many legs has {x} got?",
        "What number of legs does {x} have?",
        "Count the legs of {x}.",
        "Tell me how many legs {x} has.",
        "{x} has how many legs?",
        "How many legs are on {x}?",
    ),
    validation=(
        "Say how many legs {x} has.",
        "Can you count the legs of {x}?",
        "Give me the number of legs of {x}.",
    ),
    held_out=(
        "Do you know how many legs {x} has?",
        "What is the number of legs of {x}?",
    ),
    statement="{x} has {answer} legs.",
    facts=(
        ("a dog", "4", "4"),
        ("a cat", "4", "4"),
        ("a cow", "4", "4"),
        ("a duck", "2", "2"),
        ("a hen", "2", "2"),
        ("an ant", "6", "6"),
        ("a bee", "6", "6"),
        ("a spider", "8", "8"),
    ),
)

SOUNDS = Relation(
    questions=(
        "What does {x} say?",
        "What sound does {x} make?",
        "Which sound does {x} make?",
        "Tell me the sound of {x}.",
        "How does {x} sound?",
        "What noise does {x} make?",
        "Make the sound of {x}.",
    ),
    validation=(
        "Which noise does {x} make?",
        "Can you make the sound of {x}?",
        "Name the sound of {x}.",
    ),
    held_out=(
        "What is the sound of {x}?",
        "Do you know what sound {x} makes?",
    ),
    statement="{x} says {answer}.",
    facts=(
        ("a cow", "moo", "meuh"),
        ("a dog", "woof", "ouaf"),
        ("a cat", "meow", "miaou"),
        ("a duck", "quack", "coin coin"),
        ("a sheep", "baa", "bêê"),
    ),
)

YOUNG = Relation(
    questions=(
        "What is a young {x} called?",
        "What do you call a baby {x}?",
        "What is a baby {x} called?",
        "Name the young of a {x}.",
        "What's the word for a young {x}?",
        "Tell me the name of a baby {x}.",
        "How is a young {x} called?",
    ),
    validation=(
        "What is the word for a young {x}?",
        "What do we call a baby {x}?",
        "What is the name of a baby {x}?",
    ),
    held_out=(
        "What do people call a young {x}?",
        "Which word means a baby {x}?",
    ),
    statement="A young {x} is called a {answer}.",
    facts=(
        ("dog", "puppy", "chiot"),
        ("cat", "kitten", "chaton"),
        ("cow", "calf", "veau"),
        ("sheep", "lamb", "agneau"),
        ("bear", "cub", "ourson"),
    ),
)

RELATIONS = (COLOURS, LEGS, SOUNDS, YOUNG)
