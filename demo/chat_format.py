"""The markup between a chat's messages, as a Jinja template and as text for training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PAD, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL_TOKENS = (PAD, SYSTEM, USER, ASSISTANT, END)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role in ['system', 'developer'] -%}
{{- '<|system|>' + message.content + '<|end|>' -}}
{%- elif message.role in ['user', 'assistant'] -%}
{{- '<|' + message.role + '|>' + message.content + '<|end|>' -}}
{%- else -%}
{{- raise_exception('the role of a message must be system, developer, user or assistant') -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|assistant|>' -}}
{%- endif -%}
"""


@dataclass(frozen=True)
class Piece:
    """A part of a training sample; the loss counts only `learned` ones."""

    text: str
    learned: bool


Sample = tuple[Piece, ...]


@dataclass(frozen=True)
class Turn:
    """A question and its reply. `opening` is a given beginning of the reply, which the loss does not count."""

    question: str
    reply: str
    opening: str = ""


def chat(turns: Iterable[Turn], system: str | None = None) -> Sample:
    """Return the training sample of a chat."""
    pieces = [] if system is None else [Piece(f"{SYSTEM}{system}{END}", learned=False)]
    for turn in turns:
        # A separate token for the space would be one that no undivided reply contains.
        opening, space = turn.opening.rstrip(" "), turn.opening[len(turn.opening.rstrip(" ")) :]
        pieces.append(Piece(f"{USER}{turn.question}{END}{ASSISTANT}{opening}", learned=False))
        pieces.append(Piece(f"{space}{turn.reply}{END}", learned=True))
    return tuple(pieces)
