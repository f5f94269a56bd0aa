"""A chat on a terminal or through pipes."""

import sys
from collections.abc import Iterator

from loragate.cli.client.http.api import Api
from loragate.cli.client.terminal.conversation import Conversation
from loragate.cli.errors import CliError


def first_model(api: Api) -> str:
    """Return the id of the base model, which the server lists first."""
    return str(api.call("GET", "/v1/models")["data"][0]["id"])


def print_reply(conversation: Conversation, prompt: str) -> None:
    """Print the reply as it is generated, and end the line even when it is interrupted. The model's reasoning goes to
    stderr, dimmed, if that is a terminal."""
    begun = False
    thought = _Thought()
    try:
        for piece in conversation.send(prompt, thought.add):
            thought.end()
            print(piece, end="", flush=True)
            begun = True
    finally:
        thought.end()
        if begun:
            print(flush=True)


class _Thought:
    """The reasoning before a reply, shown on a terminal only."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._is_open = False

    def add(self, text: str) -> None:
        if self._is_shown:
            print(text if self._is_open else f"\x1b[2m{text}", end="", file=sys.stderr, flush=True)
            self._is_open = True

    def end(self) -> None:
        if self._is_open:
            print("\x1b[0m\n", file=sys.stderr, flush=True)
            self._is_open = False


def run_chat(conversation: Conversation, model: str) -> None:
    """Chat turn by turn until the input ends. On a terminal, a failed turn is reported and the chat continues."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip():
                print_reply(conversation, line.strip())
        return
    print(f"Chatting with {model}. Ctrl-D ends the chat, Ctrl-C stops a reply.", file=sys.stderr)
    for prompt in _typed_prompts():
        try:
            print_reply(conversation, prompt)
        except CliError as error:
            print(f"error: {error.message}", file=sys.stderr)
        except KeyboardInterrupt:
            continue


def _typed_prompts() -> Iterator[str]:
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
