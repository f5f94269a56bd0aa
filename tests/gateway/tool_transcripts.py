"""Texts of models that call tools, and how to parse them."""

from typing import Any, NamedTuple

TOOLS: dict[str, dict[str, Any]] = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "where": {"$ref": "#/$defs/place"},
            "exact": {"type": "boolean"},
        },
        "required": ["city"],
        "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}}},
    },
    "time-of_day": {"type": "object", "properties": {}},
}


class Transcript(NamedTuple):
    """`calls` are names with the arguments' exact text."""

    format: str
    text: str
    content: str
    calls: list[tuple[str, str]]


NASTY = '{"city": "</tool_call>\\"}]) [TOOL_CALLS] <script>alert(1)</script> \\u00e9\\n日本 🙂 \\\\"}'
_D = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)

WELL_FORMED = [
    Transcript("hermes", "Just text, <b>bold</b> & <tool.\n", "Just text, <b>bold</b> & <tool.\n", []),
    Transcript("hermes", "", "", []),
    Transcript("hermes", " \n ", " \n ", []),
    Transcript(
        "hermes",
        'Let me look.\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo",  "days": 2}}\n</tool_call>\n',
        "Let me look.\n",
        [("weather", '{"city": "Oslo",  "days": 2}')],
    ),
    Transcript(
        "hermes",
        '<tool_call>{"arguments": {"city": "a"}, "name": "weather"}</tool_call>\n'
        '<tool_call>{"name":"time-of_day","arguments":{}}</tool_call> and on.',
        " and on.",
        [("weather", '{"city": "a"}'), ("time-of_day", "{}")],
    ),
    Transcript(
        "hermes", f'<tool_call>{{"name": "weather", "arguments": {NASTY}}}</tool_call>', "", [("weather", NASTY)]
    ),
    Transcript("hermes", '<tool_call>{"name": "time-of_day"}</tool_call>', "", [("time-of_day", "{}")]),
    Transcript(
        "hermes", '<tool_call>{"name": "time-of_day", "arguments": null}</tool_call>', "", [("time-of_day", "{}")]
    ),
    Transcript(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"a\\"}"}</tool_call>',
        "",
        [("weather", '{"city": "a"}')],
    ),
    Transcript(
        "hermes",
        '<tool_call>{"id": 7, "type": "function", "name": "time-of_day", "arguments": {}, '
        '"id": [1, {"x": "]"}]}</tool_call>',
        "",
        [("time-of_day", "{}")],
    ),
    Transcript("llama_json", '{"name": "weather", "parameters": {"city": "a"}}', "", [("weather", '{"city": "a"}')]),
    Transcript(
        "llama_json",
        '\n{"name": "weather", "parameters": {"city": "a"}}; {"name": "time-of_day", "parameters": {}}\n',
        "\n",
        [("weather", '{"city": "a"}'), ("time-of_day", "{}")],
    ),
    Transcript(
        "llama_json",
        'Well: <|python_tag|>{"type": "function", "name": "weather", "parameters": {"city": "a"}}',
        "Well:",
        [("weather", '{"city": "a"}')],
    ),
    Transcript("llama_json", '{"answer": {"name": "weather"}}', '{"answer": {"name": "weather"}}', []),
    Transcript(
        "llama_json", 'So {"name": "weather", "parameters": {}}', 'So {"name": "weather", "parameters": {}}', []
    ),
    Transcript("llama_json", "<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
    Transcript(
        "mistral",
        'Hm. [TOOL_CALLS] [{"name": "weather", "arguments": {"city": "a"}, "id": "D681PevKs"}, '
        '{"name": "time-of_day", "arguments": {}}]',
        "Hm.",
        [("weather", '{"city": "a"}'), ("time-of_day", "{}")],
    ),
    Transcript(
        "mistral_named",
        f"[TOOL_CALLS]weather[ARGS]{NASTY}[TOOL_CALLS]time-of_day[CALL_ID]D681PevKs[ARGS]{{}}",
        "",
        [("weather", NASTY), ("time-of_day", "{}")],
    ),
    Transcript("mistral_named", '[TOOL_CALLS]weather{"city": "a"}', "", [("weather", '{"city": "a"}')]),
    Transcript(
        "pythonic",
        "[weather(city='O\\'Slo)]', days=-2, where={'lat': [1.5, (2,)], \"b\": None}, exact=True), time-of_day()]",
        "",
        [
            ("weather", '{"city": "O\'Slo)]", "days": -2, "where": {"lat": [1.5, [2]], "b": null}, "exact": true}'),
            ("time-of_day", "{}"),
        ],
    ),
    Transcript(
        "pythonic",
        'Hm. <|python_start|>[weather(city="é\\n\\u65e5\\x41\\q", exact=false)]<|python_end|> ok',
        "Hm. ok",
        [("weather", '{"city": "é\\n日A\\\\q", "exact": false}')],
    ),
    Transcript("pythonic", "[1, 2, 3]", "[1, 2, 3]", []),
    Transcript(
        "qwen3_coder",
        'Now:\n<tool_call>\n<function=weather>\n<parameter=city>\n<b>\n"x"\\\n</b>\n</parameter>\n'
        "<parameter=days>\n3\n</parameter>\n<parameter=exact>True</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=time-of_day>\n</function>\n</tool_call>",
        "Now:",
        [("weather", '{"city": "<b>\\n\\"x\\"\\\\\\n</b>", "days": 3, "exact": true}'), ("time-of_day", "{}")],
    ),
    Transcript(
        "qwen3_coder",
        "<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\nsoon\n</parameter>\n</function>",
        "",
        [("weather", '{"city": "12", "days": "soon"}')],
    ),
    Transcript(
        "qwen3_coder",
        '<tool_call>\n{"name": "time-of_day", "arguments": {}}\n</tool_call>',
        "",
        [("time-of_day", "{}")],
    ),
    Transcript(
        "glm",
        "Hm.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>O'\"slo 🙂</arg_value>\n"
        '<arg_key>where</arg_key>\n<arg_value>{"lat": 1}</arg_value>\n</tool_call>\n<tool_call>time-of_day</tool_call>',
        "Hm.",
        [("weather", '{"city": "O\'\\"slo 🙂", "where": {"lat": 1}}'), ("time-of_day", "{}")],
    ),
    Transcript(
        "deepseek",
        f'Hm.{_D[0]}{_D[2]}function{_D[4]}weather\n```json\n{{"city": "```"}}\n```{_D[3]}\n'
        f"{_D[2]}function{_D[4]}time-of_day\n```json\n{{}}\n```{_D[3]}{_D[1]}",
        "Hm.",
        [("weather", '{"city": "```"}'), ("time-of_day", "{}")],
    ),
    Transcript(
        "deepseek_v3_1",
        f"{_D[0]}{_D[2]}weather{_D[4]}{NASTY}{_D[3]}{_D[2]}time-of_day{_D[4]}{{}}{_D[3]}{_D[1]}",
        "",
        [("weather", NASTY), ("time-of_day", "{}")],
    ),
]

_UNKNOWN = {
    "hermes": '<tool_call>{"name": "no-such", "arguments": {}}</tool_call>',
    "llama_json": '{"name": "no-such", "parameters": {}}',
    "mistral": '[TOOL_CALLS][{"name": "no-such", "arguments": {}}]',
    "mistral_named": "[TOOL_CALLS]no-such[ARGS]{}",
    "pythonic": "[no-such(a=1)]",
    "qwen3_coder": "<tool_call>\n<function=no-such>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>no-such\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    "deepseek": f"{_D[0]}{_D[2]}function{_D[4]}no-such\n```json\n{{}}\n```{_D[3]}{_D[1]}",
    "deepseek_v3_1": f"{_D[0]}{_D[2]}no-such{_D[4]}{{}}{_D[3]}{_D[1]}",
}

# None of these is a call: all of the text is content.
MALFORMED = [
    *_UNKNOWN.items(),
    ("hermes", "<tool_call>"),
    ("hermes", "<tool_call>weather</tool_call>"),
    ("hermes", "<tool_call>{'name': 'weather'}</tool_call>"),
    ("hermes", '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>{"name": "weather", "arguments": 1}</tool_call>'),
    ("hermes", '<tool_call>{"name": "weather", "arguments": "[1"}</tool_call>'),
    ("hermes", '<tool_call>{"name": "weather", "arguments": "{\\"a\\": \\"\\ud800\\"}"}</tool_call>'),
    ("hermes", '<tool_call>{"arguments": {"a": }, "name": "weather"}</tool_call>'),
    ("hermes", '<tool_call>{"arguments": {"city": "a"}}</tool_call>'),
    ("hermes", '<tool_call>{"arguments": ' + '{"a":' * 5000 + "1" + "}" * 5000 + ', "name": "weather"}</tool_call>'),
    ("hermes", '<tool_call>{"name": ["weather"], "arguments": {}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "weather'),
    ("hermes", '<tool_call>{"name": "weather", "argum'),
    ("llama_json", '{"name": "weather"'),
    ("llama_json", "{"),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", "[TOOL_CALLS][]"),
    ("mistral", "[TOOL_CALLS][[]]"),
    ("mistral_named", "[TOOL_CALLS]weather"),
    ("mistral_named", "[TOOL_CALLS]weather[ARGS]"),
    ("mistral_named", "[TOOL_CALLS]" + "w" * 100_000),
    ("pythonic", "[weather(city)]"),
    ("pythonic", "[weather(city=open('x'))]"),
    ("pythonic", "[weather(city='a' 'b')]"),
    ("pythonic", "[weather(city='a'"),
    ("pythonic", "[weather(city=" + "[" * 5000 + "]" * 5000 + ")]"),
    ("pythonic", "[weather(city=1e999)]"),
    ("pythonic", "[weather(days=" + "9" * 5000 + ")]"),
    ("qwen3_coder", "<tool_call>\n<function=weather>"),
    ("qwen3_coder", "<function=weather>text</function>"),
    ("qwen3_coder", "<function=weather"),
    ("glm", "<tool_call>weather"),
    ("glm", "<tool_call>weather is fine</tool_call>"),
    ("deepseek", f"{_D[0]}{_D[2]}function{_D[4]}weather\n```json\n"),
    ("deepseek_v3_1", f"{_D[0]}weather"),
]

# A call has begun, so that the rest cannot become content any more.
BROKEN_LATE = [
    Transcript(
        "hermes", '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>', "", [("weather", '{"city": }')]
    ),
    Transcript(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": {"city": "a"}</tool_call>.',
        ".",
        [("weather", '{"city": "a"}')],
    ),
    Transcript("hermes", '<tool_call>{"name": "weather", "arguments": {"city": "Os', "", [("weather", '{"city": "Os')]),
    Transcript(
        "hermes",
        '<tool_call>{"name": "weather", "arguments": {}} oh</tool_call>',
        " oh</tool_call>",
        [("weather", "{}")],
    ),
    Transcript("mistral", '[TOOL_CALLS][{"name": "weather", "arguments": {}}, 5]', ", 5]", [("weather", "{}")]),
    Transcript("pythonic", "[weather(city='a'), oops]", ", oops]", [("weather", '{"city": "a"}')]),
    Transcript(
        "qwen3_coder",
        "<function=weather><parameter=city>\nOs",
        "",
        [("weather", '{"city": "Os')],
    ),
    Transcript("qwen3_coder", "<function=weather><parameter=days>\n1", "", [("weather", '{"days": 1')]),
    Transcript(
        "qwen3_coder",
        "<function=weather><parameter=days>1</parameter>oops</function>",
        "oops</function>",
        [("weather", '{"days": 1}')],
    ),
    Transcript(
        "glm", "<tool_call>weather<arg_key>city</arg_key>oops", "<arg_key>city</arg_key>oops", [("weather", "{}")]
    ),
]
