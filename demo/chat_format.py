"""The markup between a chat's messages, as a Jinja template and as text for training.

Calls are written as Hermes and Qwen write them. Tools are shown as signatures, one on a line, which are much shorter
than their JSON schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

PAD, SYSTEM, USER, ASSISTANT, END = "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
TOOLS, RESULT = "<|tools|>", "<|tool|>"
SPECIAL_TOKENS = (PAD, SYSTEM, USER, ASSISTANT, END, TOOLS, RESULT)

CALL, CALL_END, THINK, THINK_END = "<tool_call>", "</tool_call>", "<think>", "</think>"
VISIBLE_TOKENS = (CALL, CALL_END, THINK, THINK_END)
"""Tokens that are part of the text of a reply."""

CHAT_TEMPLATE = """\
{%- if tools -%}
{{- '<|tools|>' -}}
{%- for tool in tools -%}
{%- set function = tool.function -%}
{%- set parameters = function.parameters or {} -%}
{%- set names = parameters['required'] or parameters['properties'] or [] -%}
{{- function.name + '(' + names | list | join(', ') + ')' -}}
{%- if function.description -%}
{{- ': ' + (function.description.strip().split('\\n') | first) -}}
{%- endif -%}
{{- '\\n' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- endif -%}
{%- for message in messages -%}
{%- set content = message.content or '' -%}
{%- if message.role in ['system', 'developer'] -%}
{{- '<|system|>' + content + '<|end|>' -}}
{%- elif message.role == 'user' -%}
{{- '<|user|>' + content + '<|end|>' -}}
{%- elif message.role == 'tool' -%}
{{- '<|tool|>' + content + '<|end|>' -}}
{%- elif message.role == 'assistant' -%}
{{- '<|assistant|>' + (content.split('</think>\\n\\n') | last) -}}
{%- for call in message.tool_calls or [] -%}
{%- if content or not loop.first -%}
{{- '\\n' -}}
{%- endif -%}
{%- set arguments = call.function.arguments -%}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' -}}
{{- arguments if arguments is string else arguments | tojson -}}
{{- '}\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|end|>' -}}
{%- else -%}
{{- raise_exception('the role of a message must be system, developer, user, assistant or tool') -}}
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
class Call:
    """A call of a tool, and the content of the tool's message."""

    name: str
    arguments: Mapping[str, str]
    result: str

    @property
    def text(self) -> str:
        """The call as the model writes it."""
        arguments = json.dumps(dict(self.arguments), ensure_ascii=False)
        return f'{CALL}\n{{"name": "{self.name}", "arguments": {arguments}}}\n{CALL_END}'


@dataclass(frozen=True)
class Turn:
    """A question and its reply; with `call`, the reply that follows the call's result.

    `opening` is a given beginning of the reply, which the loss does not count.
    """

    question: str
    reply: str
    opening: str = ""
    call: Call | None = None


@dataclass(frozen=True)
class Tool:
    """A tool that a prompt offers."""

    name: str
    parameters: tuple[str, ...]
    description: str = ""

    @property
    def signature(self) -> str:
        """The tool as the chat template shows it."""
        described = f": {self.description}" if self.description else ""
        return f"{self.name}({', '.join(self.parameters)}){described}\n"


def chat(turns: Iterable[Turn], system: str | None = None, tools: Sequence[Tool] = ()) -> Sample:
    """Return the training sample of a chat."""
    pieces = []
    if tools:
        pieces.append(Piece(f"{TOOLS}{''.join(tool.signature for tool in tools)}{END}", learned=False))
    if system is not None:
        pieces.append(Piece(f"{SYSTEM}{system}{END}", learned=False))
    for turn in turns:
        pieces.append(Piece(f"{USER}{turn.question}{END}{ASSISTANT}", learned=False))
        if turn.call is not None:
            pieces.append(Piece(f"{turn.call.text}{END}", learned=True))
            pieces.append(Piece(f"{RESULT}{turn.call.result}{END}{ASSISTANT}", learned=False))
        # A separate token for the space would be one that no undivided reply contains.
        opening, space = turn.opening.rstrip(" "), turn.opening[len(turn.opening.rstrip(" ")) :]
        if opening:
            pieces.append(Piece(opening, learned=False))
        pieces.append(Piece(f"{space}{turn.reply}{END}", learned=True))
    return tuple(pieces)
