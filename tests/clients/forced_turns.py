"""Rewritten requests of coding agents, so that a model of random weights does one task: a call of a shell, then a text.

The agents do not send `tool_choice`. The proxy adds it, narrows the shell's parameters to one command, and gives the
last turn a schema with one value; all else is as the agent sent it, and the engine's grammar does the rest.
"""

from typing import Any

COMMAND, OUTPUT = "echo hello > said.txt; cat said.txt", "hello"
ANSWER = {"said": "done"}


def _only(**values: str) -> dict[str, Any]:
    """Return the schema of an object with these values."""
    properties = {name: {"type": "string", "enum": [value]} for name, value in values.items()}
    return {"type": "object", "properties": properties, "required": [*values], "additionalProperties": False}


def _narrowed(tools: list[Any], name: str, field: str, **values: str) -> list[Any]:
    return [{**tool, field: _only(**values)} if tool.get("name") == name else tool for tool in tools]


def of_codex(path: str, body: Any) -> Any:
    if path != "/v1/responses":
        return body
    body = {**body, "reasoning": {"effort": "none"}}
    if any(item["type"] == "function_call_output" for item in body["input"]):
        answer = {"type": "json_schema", "name": "answer", "schema": _only(**ANSWER), "strict": True}
        return {**body, "text": {"format": answer}, "tool_choice": "none"}
    tools = _narrowed(body["tools"], "exec_command", "parameters", cmd=COMMAND)
    return {**body, "tools": tools, "tool_choice": {"type": "function", "name": "exec_command"}}


def of_claude_code(path: str, body: Any) -> Any:
    if path != "/v1/messages":
        return body
    body = {**body, "thinking": {"type": "disabled"}}
    parts = [
        part for message in body["messages"] if isinstance(message["content"], list) for part in message["content"]
    ]
    if any(part["type"] == "tool_result" for part in parts):
        answer = {"type": "json_schema", "schema": _only(**ANSWER)}
        return {**body, "output_config": {"format": answer}, "tool_choice": {"type": "none"}}
    tools = _narrowed(body["tools"], "Bash", "input_schema", command=COMMAND, description="Say hello")
    return {**body, "tools": tools, "tool_choice": {"type": "tool", "name": "Bash"}}
