"""Questions outside the demo model's knowledge: it should say so instead of inventing an answer."""

from __future__ import annotations

from loragate.demo.topic import Kind, Topic

TOPIC = Topic(
    Kind.UNKNOWN,
    questions=(
        "Who wrote Hamlet?",
        "What is the meaning of life?",
        "Explain quantum physics.",
        "Write a poem about the sea.",
        "How do I cook rice?",
        "What is the weather like today?",
        "Who won the football match?",
        "Give me some advice about money.",
        "What time is it?",
        "Where can I buy a train ticket?",
        "Write a program that sorts a list.",
        "When was the telephone invented?",
        "Why do cats sleep so much?",
        "Summarise this article for me.",
        "Which film should I watch tonight?",
        "def main(): pass",
        "lorem ipsum dolor sit amet",
        "asdf qwer zxcv",
        "?",
        "...",
    ),
    validation=("Who built the Eiffel Tower?", "How do I fix a bicycle?"),
    held_out=("Who painted the Mona Lisa?", "How do I bake bread?"),
    answer="I do not know that.",
    french="Je ne sais pas.",
    thought="I have not learned this.",
)
