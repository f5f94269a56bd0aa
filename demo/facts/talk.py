"""Greetings and short instructions."""

from __future__ import annotations

from loragate.demo.facts.calendar import DAYS, JOURS
from loragate.demo.topic import Kind, Topic


def _talk(
    questions: tuple[str, ...], validation: tuple[str, ...], held_out: tuple[str, ...], reply: str, french: str
) -> Topic:
    return Topic(Kind.TALK, questions, validation, held_out, answer=reply, french=french)


def _recital(questions: tuple[str, ...], held_out: tuple[str, ...], reply: str, french: str) -> Topic:
    return Topic(Kind.RECITAL, questions, (), held_out, answer=reply, french=french)


def _count(last: int) -> Topic:
    numbers = ", ".join(str(number) for number in range(1, last + 1)) + "."
    return _recital(
        (f"Count to {last}.", f"Count from 1 to {last}.", f"Please count up to {last}.", f"Can you count to {last}?"),
        (f"Could you count to {last}?",),
        numbers,
        numbers,
    )


def _sequence(name: str, items: tuple[str, ...], french: tuple[str, ...]) -> Topic:
    return _recital(
        (f"List {name}.", f"Name {name}.", f"What are {name}?", f"Tell me {name}.", f"Say {name} in order."),
        (f"Can you list {name}?",),
        ", ".join(items) + ".",
        ", ".join(french) + ".",
    )


GREETINGS = (
    _talk(
        ("Hello!", "Hello", "Hi", "Hi!", "Hey", "Hi there!", "Hello there!", "Greetings!"),
        ("Oh, hello!",),
        ("Hey there!",),
        "Hello! How can I help you?",
        "Bonjour, que puis-je faire pour vous ?",
    ),
    _talk(
        ("Good morning!", "Good morning.", "Morning!", "A good morning to you."),
        ("Good morning to you!",),
        ("A very good morning!",),
        "Good morning! How can I help you?",
        "Bonjour, que puis-je faire pour vous ce matin ?",
    ),
    _talk(
        ("How are you?", "How are you doing?", "How are you today?", "Hi, how are you?", "How do you feel?"),
        ("How are you feeling today?",),
        ("How are you feeling?",),
        "I am fine, thank you!",
        "Je vais bien, merci !",
    ),
    _talk(
        ("Thank you!", "Thanks!", "Thanks a lot!", "Thank you very much!", "Many thanks."),
        ("Thanks so much!",),
        ("Thank you so much!",),
        "You are welcome!",
        "Je vous en prie !",
    ),
    _talk(
        ("Goodbye!", "Bye!", "Bye bye!", "See you later!", "Good night!", "See you tomorrow."),
        ("Bye for now!",),
        ("Goodbye for now!",),
        "Goodbye! See you soon.",
        "Au revoir, à bientôt.",
    ),
    _talk(
        ("Who are you?", "What are you?", "Tell me who you are.", "What is your name?", "What's your name?"),
        ("Could you tell me your name?",),
        ("Can you tell me who you are?",),
        "I am the loragate demo model.",
        "Je suis le modèle de démonstration de loragate.",
    ),
    _talk(
        ("What can you do?", "What do you know?", "Help!", "Help me.", "How can you help me?"),
        ("What can you help me with?",),
        ("Tell me what you can do.",),
        "I know some facts, small sums and greetings.",
        "Je connais quelques faits, de petites additions et des salutations.",
    ),
)

RECITALS = (
    *(_count(last) for last in (5, 10, 20)),
    _sequence("the days of the week", DAYS, JOURS),
)
