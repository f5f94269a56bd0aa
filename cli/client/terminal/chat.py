"""A conversation on a terminal or through pipes."""

import sys
from collections.abc import Iterator

from loragate.cli.client.http.api import Api
from loragate.cli.client.terminal.conversation import Conversation
from loragate.cli.refusal import Refusal


def first_model(api: Api) -> str:
    """The base model: the server lists it first."""
    return str(api.call("GET", "/v1/models")["data"][0]["id"])


def answer(conversation: Conversation, prompt: str) -> None:
    """Prints the answer as it comes, then ends the line, also of one that breaks off."""
    begun = False
    try:
        for piece in conversation.say(prompt):
            print(piece, end="", flush=True)
            begun = True
    finally:
        if begun:
            print(flush=True)


def talk(conversation: Conversation, model: str) -> None:
    """Turn by turn until the input ends. On a terminal a failed turn is reported and the talk goes on."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip():
                answer(conversation, line.strip())
        return
    print(f"Talking to {model}. Ctrl-D ends the talk, Ctrl-C an answer.", file=sys.stderr)
    for prompt in _typed():
        try:
            answer(conversation, prompt)
        except Refusal as refusal:
            print(f"error: {refusal.message}", file=sys.stderr)
        except KeyboardInterrupt:
            continue


def _typed() -> Iterator[str]:
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession()
    while True:
        try:
            prompt = session.prompt("> ").strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if prompt:
            yield prompt
