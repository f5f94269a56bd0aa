"""Which scripts of a page may run."""

from types import SimpleNamespace

from jinja2 import DictLoader, Environment

from loragate.panel.page_headers import _WithNonces


def test_only_the_templates_own_scripts_get_the_nonce() -> None:
    template = '<script type="module">start("{{ name }}")</script><scripted>{{ html | safe }}<script\n>end()</script>'
    environment = Environment(loader=_WithNonces(DictLoader({"page": template})), autoescape=True)
    request = SimpleNamespace(state=SimpleNamespace(csp_nonce="n0nce"))
    page = environment.get_template("page").render(request=request, name="me", html="<script>steal()</script>")
    assert page == (
        '<script nonce="n0nce" type="module">start("me")</script><scripted><script>steal()</script>'
        '<script nonce="n0nce"\n>end()</script>'
    )
