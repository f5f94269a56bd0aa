"""Requests into which a single field can be put, by its path (see sdk_fields.py)."""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.clients.sdk_fields import NAMING
from tests.gateway.tiny_model import MODEL_ID

Body = dict[str, Any]
_SEGMENT = re.compile(r"(?P<name>[^.<\[]+)(?P<items>\[\])?(?:<(?P<form>[^>]*)>)?")

_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_FUNCTION = {"name": "weather", "description": "Tells the weather.", "parameters": _SCHEMA}
_TOOL = {"type": "function", "function": _FUNCTION}
_GRAMMAR = {"syntax": "lark", "definition": 'start: "+" /.+/'}
_CUSTOM = {"name": "patch", "description": "Changes files.", "format": {"type": "grammar", "grammar": _GRAMMAR}}
_CUSTOM_TOOL = {"type": "custom", "custom": _CUSTOM}
_CALLED = {"name": "weather", "arguments": '{"city":"Oslo"}'}
_FORMAT = {"name": "answer", "schema": _SCHEMA}
_TEXTS = [{"type": "text", "text": "What is the weather?"}]
_ASKED = {"role": "user", "content": _TEXTS}
_FORCED = {"type": "function", "function": {"name": "weather"}}
_ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [_FORCED]}}
_FUNCTION_USED = [
    {"role": "assistant", "content": None, "function_call": _CALLED},
    {"role": "function", "name": "weather", "content": "rain"},
]
_TOOL_USED = [
    {"role": "assistant", "content": _TEXTS, "tool_calls": [{"id": "call_1", "type": "function", "function": _CALLED}]},
    {"role": "tool", "tool_call_id": "call_1", "content": _TEXTS},
]
_CUSTOM_USED = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_2", "type": "custom", "custom": {"name": "patch", "input": "+a"}}],
    },
    {"role": "tool", "tool_call_id": "call_2", "content": _TEXTS},
]
_CHATS: list[Body] = [
    {"messages": [{"role": "system", "content": _TEXTS}, _ASKED], "stream": False},
    {"messages": [{"role": "developer", "content": _TEXTS}, _ASKED]},
    {"messages": [_ASKED, *_TOOL_USED], "tools": [_TOOL]},
    {"messages": [_ASKED, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, _ASKED]},
    {"messages": [_ASKED, *_FUNCTION_USED], "functions": [_FUNCTION], "function_call": {"name": "weather"}},
    {"messages": [_ASKED], "response_format": {"type": "json_schema", "json_schema": _FORMAT}},
    {"messages": [_ASKED], "stream": True, "stream_options": {}},
    {"messages": [_ASKED], "tools": [_TOOL], "tool_choice": _FORCED},
    {"messages": [_ASKED], "tools": [_TOOL], "tool_choice": _ALLOWED},
    {"messages": [_ASKED, *_CUSTOM_USED], "tools": [_CUSTOM_TOOL]},
    {"messages": [_ASKED], "tools": [_CUSTOM_TOOL], "tool_choice": {"type": "custom", "custom": {"name": "patch"}}},
]

_INPUT_TEXTS = [{"type": "input_text", "text": "What is the weather?"}]
_ITEM = {"type": "message", "role": "user", "content": _INPUT_TEXTS}
_ANSWER = {"type": "output_text", "text": "It is fine.", "annotations": []}
_NO = {"type": "refusal", "refusal": "No."}
_ANSWERED: Body = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
_REASONED = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Who knows?"}]}
_THOUGHT = {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Who knows?"}]}
_RUN = {"type": "custom_tool_call", "call_id": "call_2", "name": "shell", "input": "aa"}
_RESPONSE_TOOLS = [
    {"type": "function", **_FUNCTION, "strict": False},
    {
        "type": "custom",
        "name": "shell",
        "description": "Runs it.",
        "format": {"type": "grammar", "syntax": "regex", "definition": "a+"},
    },
    {"type": "namespace", "name": "files", "description": "Files.", "tools": [{"type": "function", "name": "read"}]},
]
_RESPONSE_CHOICES: list[Body] = [
    {"type": "function", "name": "weather"},
    {"type": "custom", "name": "shell"},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "weather"}]},
]
_RESPONSES: list[Body] = [
    {"input": [_ITEM], "stream": False},
    {"input": [{**_ANSWERED, "content": [_ANSWER]}, _ITEM]},
    {"input": [{**_ANSWERED, "content": [_NO]}, _ITEM]},
    {
        "input": [
            _ITEM,
            _REASONED,
            {"type": "function_call", "call_id": "call_1", **_CALLED},
            {"type": "function_call_output", "call_id": "call_1", "output": _INPUT_TEXTS},
            _RUN,
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": _INPUT_TEXTS},
        ],
        "tools": _RESPONSE_TOOLS,
    },
    {"input": [_ITEM], "text": {"format": {"type": "json_schema", **_FORMAT}}},
    {"input": [_ITEM, _THOUGHT, _ANSWERED | {"content": [_ANSWER]}, _ITEM]},
    {"input": [_ITEM], "reasoning": {}, "prompt_cache_options": {}},
    {"input": [_ITEM], "stream": True, "stream_options": {}},
    *({"input": [_ITEM], "tools": _RESPONSE_TOOLS, "tool_choice": choice} for choice in _RESPONSE_CHOICES),
]

_USED = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
_RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": _TEXTS}
_THOUGHTS = [{"type": "thinking", "thinking": "Who knows?", "signature": ""}, {"type": "redacted_thinking", "data": ""}]
_MESSAGE_TOOL = {"type": "custom", "name": "weather", "description": "Tells the weather.", "input_schema": _SCHEMA}
_MESSAGES: list[Body] = [
    {"messages": [_ASKED, {"role": "system", "content": _TEXTS}]},
    {
        "messages": [
            _ASKED,
            {"role": "assistant", "content": [*_THOUGHTS, *_TEXTS, _USED]},
            {"role": "user", "content": [_RESULT]},
        ],
        "system": _TEXTS,
        "tools": [_MESSAGE_TOOL],
    },
    {"messages": [_ASKED], "output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}},
    {"messages": [_ASKED], "metadata": {}},
    *(
        {"messages": [_ASKED], "thinking": {"type": kind, **more}}
        for kind, more in (("enabled", {"budget_tokens": 20}), ("adaptive", {}), ("disabled", {}))
    ),
    *(
        {"messages": [_ASKED], "tools": [_MESSAGE_TOOL], "tool_choice": choice}
        for choice in ({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "weather"})
    ),
]

_OF_KINDS: dict[str, list[Body]] = {
    "chat": _CHATS,
    "completions": [
        {"prompt": "The sea", "max_tokens": 100, "stream": False},
        {"prompt": "The sea", "stream": True, "stream_options": {}},
    ],
    "embeddings": [{"input": "The sea"}],
    "responses": _RESPONSES,
    "messages": [{"max_tokens": 100, **body} for body in _MESSAGES],
    "count_tokens": _MESSAGES,
}
BODIES: Mapping[str, list[Body]] = {
    kind: [{"model": MODEL_ID, **body} for body in bodies] for kind, bodies in _OF_KINDS.items()
}
"""Requests of each kind. Between them they have all forms that this server serves."""


class Place:
    """Where a field or a form belongs in a request: in the first body that has it, else in one that has what is around
    it."""

    def __init__(self, kind: str, path: str) -> None:
        segments = [found.groupdict() for found in _SEGMENT.finditer(path)]
        found = [(body, *place) for body in BODIES[kind.removeprefix("beta_")] for place in _find(body, segments)]
        assert found, f"no body has a place for {path}"
        self._body, self._around, self._last = next((each for each in found if each[2] in _node(*each[:2])), found[0])
        self._is_item = segments[-1]["items"] is not None

    @property
    def param(self) -> str:
        """The place as errors name it."""
        items = [len(self._list(self._body))] if self._is_item else []
        return ".".join(map(str, [*self._around, self._last, *items]))

    def body(self, *value: Any, **beside: Any) -> Body:
        """Return the request with this value in the place, or as it is, and with the fields `beside` it."""
        body = copy.deepcopy({**self._body, **beside})
        if self._is_item:
            _node(body, self._around)[self._last] = [*self._list(body), *value]
        elif value:
            _node(body, self._around)[self._last] = value[0]
        return body

    def without(self, **beside: Any) -> Body:
        """Return the request without the field."""
        body = self.body(**beside)
        _node(body, self._around).pop(self._last, None)
        return body

    def _list(self, body: Body) -> list[Any]:
        """Return the items that are already in the place."""
        items: list[Any] = _node(body, self._around).get(self._last, [])
        return items


def _find(node: Any, segments: list[dict[str, str | None]]) -> Iterator[tuple[list[str | int], str]]:
    """Yield the keys and indices of each object around such a place, and the key in it."""
    (head, *rest), name = segments, str(segments[0]["name"])
    if isinstance(node, dict) and not rest:
        yield [], name
    if not isinstance(node, dict) or not rest or name not in node:
        return
    inner = node[name] if head["items"] else [node[name]]
    for index, each in enumerate(inner if isinstance(inner, list) else ()):
        if _is_form(each, head["form"]):
            for steps, last in _find(each, rest):
                yield [*([name, index] if head["items"] else [name]), *steps], last


def _node(body: Body, steps: list[str | int]) -> Body:
    node: Any = body
    for step in steps:
        node = node[step]
    found: Body = node
    return found


def _is_form(node: Any, form: str | None) -> bool:
    return isinstance(node, dict) and (not form or form in {node.get(name) for name in NAMING})
