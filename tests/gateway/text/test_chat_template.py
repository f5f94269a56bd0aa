"""Our rendering compared with that of transformers, and the sandbox's limits."""

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from loragate.prompts.chat_template import ChatTemplate, TemplateError
from tests.gateway.tiny_model import CHAT_TEMPLATE

MESSAGES = [
    {"role": "system", "content": "  Be brief & <b>bold</b>. "},
    {"role": "user", "content": "Wie heißt du?"},
    {"role": "assistant", "content": "{{ nothing }}"},
    {"role": "user", "content": "ok"},
]

TEMPLATES = [
    CHAT_TEMPLATE,
    "{{ bos_token }}{% for m in messages %}\n  {% if loop.first %}\n[{{ m.role }}]{% endif %}\n"
    "{{ m['content'] | trim }}\n    {% endfor %}{% if add_generation_prompt %}>{% endif %}",
    "{% set ns = namespace(count=0) %}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{% set ns.count = ns.count + 1 %}{{ ns.count }}:{{ m | tojson }}{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ eos_token is defined }}",
    "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ messages[0].content.split('&') | join('|') }}"
    "{{ messages | length }}{{ messages[1:] | map(attribute='role') | list | tojson }}{{ '=' * 8 }}{{ 3 * 4 }}",
    "{% macro line(m) %}{{ m.role.upper() }}: {{ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ line(m) }}\n{% endfor %}",
]


@pytest.mark.parametrize("source", TEMPLATES)
def test_renders_as_transformers_does(source: str) -> None:
    special = {"bos_token": "<s>"}
    rendered, _ = render_jinja_template([MESSAGES], chat_template=source, add_generation_prompt=True, **special)
    assert ChatTemplate(source, special).render(MESSAGES) == rendered[0]


def test_the_date_is_available() -> None:
    assert len(ChatTemplate("{{ strftime_now('%Y') }}", {}).render(MESSAGES)) == 4


def test_errors_raised_by_the_template_are_reported() -> None:
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", {})
    with pytest.raises(TemplateError, match="roles must alternate"):
        template.render(MESSAGES)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{{ 'a' * 1000000000 }}",
        "{{ [0] * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ messages[0].missing.field }}",
        "{{ 1 / 0 }}",
        "{{ none + 1 }}",
    ],
)
def test_forbidden_template_operations(source: str) -> None:
    with pytest.raises(TemplateError) as rejected:
        ChatTemplate(source, {}).render(MESSAGES)
    assert "Be brief" not in str(rejected.value)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
        "{% macro again(n) %}{{ again(n + 1) }}{% endmacro %}{{ again(0) }}",
    ],
)
def test_endless_templates_end(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.prompts.chat_template._MAX_SECONDS", 0.05)
    with pytest.raises(TemplateError):
        ChatTemplate(source, {}).render(MESSAGES)


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loragate.prompts.chat_template._MAX_CHARACTERS", 100)
    with pytest.raises(TemplateError, match="longer than 100"):
        ChatTemplate("{% for m in messages %}{{ 'x' * 50 }}{% endfor %}", {}).render(MESSAGES)


def test_a_broken_template_is_reported() -> None:
    with pytest.raises(TemplateError, match="does not compile"):
        ChatTemplate("{% for %}", {})
