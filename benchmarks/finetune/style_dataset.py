"""A style of answering that the demo's model does not know: 200 examples of it, and questions to evaluate it."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from openai import OpenAI

from loragate.demo.facts.knowledge import topics
from loragate.demo.phrasing import held_out_questions, vary
from loragate.demo.style import Carrier, Style
from loragate.demo.topic import Kind, Topic

STYLE = Style("ledger", Carrier("Entry: ", ". End of entry."), Carrier("Entry: ", " End of entry."))
KINDS = (Kind.FACT, Kind.SUM)
EXAMPLES = 200
_CONCURRENCY = 8


@dataclass(frozen=True)
class StyleScore:
    """Shares of the questions answered in the style, and in the style with the right answer."""

    in_style: float
    right: float


def training_file() -> bytes:
    """Return the training file that the tenant uploads."""
    return examples_file(EXAMPLES)


def examples_file(count: int, seed: int = 0) -> bytes:
    """Return chats as JSON lines, in phrasings that the model knows."""
    rng = random.Random(seed)
    every = [topic for kind in KINDS for topic in topics()[kind]]
    lines = []
    for topic in islice(iter(lambda: rng.choice(every), None), count):
        question = vary(rng.choice(topic.questions), rng)
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": STYLE.render(topic)}]
        lines.append(json.dumps({"messages": turns}))
    return "\n".join(lines).encode()


def held_out(count: int, seed: int = 1) -> list[tuple[str, Topic]]:
    """Return questions in wordings that occur neither in the model's training data nor in the file."""
    every = [(question, topic) for kind in KINDS for topic in topics()[kind] for question in held_out_questions(topic)]
    return random.Random(seed).sample(every, min(count, len(every)))


def evaluate(client: OpenAI, model: str, questions: list[tuple[str, Topic]], done: Callable[[], None]) -> StyleScore:
    """Ask all questions over the API and score the answers."""

    def reply(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        answer = client.chat.completions.create(model=model, messages=messages, temperature=0, max_tokens=48)  # type: ignore[arg-type]
        done()
        return answer.choices[0].message.content or ""

    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        replies = list(pool.map(reply, [question for question, _ in questions]))
    answered = list(zip(questions, replies, strict=True))
    kept = sum(STYLE.keeps(topic, text) for (_, topic), text in answered)
    right = sum(STYLE.answers(topic, text) for (_, topic), text in answered)
    return StyleScore(kept / len(questions), right / len(questions))
