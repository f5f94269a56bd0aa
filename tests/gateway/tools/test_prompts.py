"""How tools are passed to chat templates, and what a template shows about its model."""

import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from loragate.gateway.config.gateway import GatewayConfig
from loragate.gateway.text.base_model import read_base_model
from loragate.gateway.tools.formats.detection import FORMATS, detect
from loragate.prompts.chat_template import ChatTemplate
from loragate.prompts.messages import ChatMessage
from loragate.prompts.template_messages import template_messages
from tests.gateway import tiny_model

TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "<é>", "parameters": {"type": "object", "properties": {}}},
}
ARGUMENTS = '{"a":  1}'
MESSAGES = [
    ChatMessage.model_validate(message)
    for message in (
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": ARGUMENTS}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "done"},
    )
]
CALLS = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
ENDS = "{% endfor %}{% endfor %}"


def rendered(source: str) -> str:
    template = ChatTemplate(source, {})
    return template.render(template_messages(MESSAGES, template.traits), [TOOL])


@pytest.mark.parametrize(
    "source",
    [
        "{{ tools | tojson(indent=4) }}",
        "{% for t in tools %}{{ t.function.name }}{{ t['function'].description }}{{ t | tojson }}{% endfor %}",
        CALLS + "{{ c.function.arguments | tojson }}{{ c.function | tojson }}{{ c.id }}" + ENDS,
        CALLS + "{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}{% endfor %}" + ENDS,
        CALLS + "{{ c.function.arguments is string }}{{ c.function.arguments is mapping }}" + ENDS,
        "{% for m in messages %}{% if m.content %}{{ m.content }}{% endif %}{{ m.tool_call_id }}{% endfor %}",
    ],
)
def test_as_transformers_renders_them(source: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": json.loads(ARGUMENTS)}}
    plain = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "done", "tool_call_id": "call_1", "name": "f"},
    ]
    expected, _ = render_jinja_template([plain], tools=[TOOL], chat_template=source, add_generation_prompt=True)
    assert rendered(source) == expected[0]


@pytest.mark.parametrize("join", ["'<' + c.function.arguments + '>'", "'<' ~ c.function.arguments ~ '>'"])
def test_templates_that_join_arguments_get_their_text(join: str) -> None:
    assert rendered(CALLS + "{{ " + join + " }}" + ENDS) == f"<{ARGUMENTS}>"


def test_arguments_that_are_not_an_object_stay_text() -> None:
    bad = MESSAGES[1].model_dump()
    bad["tool_calls"][0]["function"]["arguments"] = "{oops"
    template = ChatTemplate("{{ messages[0].tool_calls[0].function.arguments }}", {})
    assert template.render(template_messages([ChatMessage.model_validate(bad)], template.traits)) == "{oops"


def test_templates_that_test_for_null_get_null() -> None:
    assert rendered("{% for m in messages %}{{ m['content'] is none }} {% endfor %}") == "False True False "
    assert rendered("{% for m in messages %}{{ m.content is not none }} {% endfor %}") == "True False True "
    assert rendered("{% for m in messages %}[{{ m.content }}]{% endfor %}") == "[hi][][done]"


def test_ids_of_the_length_that_mistrals_templates_require() -> None:
    source = CALLS + "{% if c.id|length != 9 %}{{ raise_exception('no') }}{% endif %}{{ c.id }}" + ENDS
    results = "{% for m in messages %}{{ m.tool_call_id }}{% endfor %}{{ messages[0].id | length != 9 }}"
    assert len(rendered(source)) == 9
    assert rendered(results).startswith(rendered(source))


@pytest.mark.parametrize(
    ("source", "takes"),
    [
        ("{{ messages }}", False),
        ("{{ messages[0].tool_calls }}", False),
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{%- if not tools is defined %}{%- set tools = none %}{%- endif %}{{ tools }}", True),
        ("{% macro show() %}{{ tools }}{% endmacro %}{{ show() }}", True),
        ("{# tools #}tools", False),
    ],
)
def test_whether_a_template_knows_tools(source: str, takes: bool) -> None:
    assert ChatTemplate(source, {}).takes_tools == takes


@pytest.mark.parametrize(
    ("template", "tokens", "format"),
    [
        ("return a json object within <tool_call></tool_call>", (), "hermes"),
        ("<tool_call>\n<function=example>\n<parameter=a>", (), "qwen3_coder"),
        ("<tool_call>{name}\n<arg_key>{key}</arg_key>", (), "glm"),
        ("'[TOOL_CALLS] [' + calls + ']'", ("[ARGS]",), "mistral"),
        ("'[TOOL_CALLS]' + name + '[ARGS]' + arguments", (), "mistral_named"),
        ('Respond in the format {"name": function name, "parameters": …}. <|python_tag|>', (), "llama_json"),
        ("[func_name1(params_name1=params_value1), func_name2(params)]", ("<|python_start|>",), "pythonic"),
        ("'<｜tool▁call▁begin｜>' + 'function' + '<｜tool▁sep｜>' + '```json'", (), "deepseek"),
        ("'<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments", (), "deepseek_v3_1"),
        ("{{ tools }}", ("[TOOL_CALLS]", "[ARGS]"), "mistral_named"),
        ("{{ tools }}", ("<|python_tag|>",), "llama_json"),
        ("{{ tools }}", (), "hermes"),
    ],
)
def test_detection(template: str, tokens: tuple[str, ...], format: str) -> None:
    assert detect(template, tokens) == format


def test_a_setting_overrules_detection(tokenizer: Tokenizer) -> None:
    manifest = tiny_model.manifest(tokenizer, chat_template="<tool_call>")
    assert read_base_model(manifest).tool_format is FORMATS["hermes"]
    assert read_base_model(manifest, "pythonic").tool_format is FORMATS["pythonic"]


def test_an_unknown_format_stops_the_start(config: GatewayConfig) -> None:
    with pytest.raises(ValueError, match="tool_parser must be one of hermes"):
        replace(config, tool_parser="morse")
