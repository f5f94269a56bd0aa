"""Which scripts of a page may run, and over what it is fetched."""

from types import SimpleNamespace

import httpx
import pytest
from jinja2 import DictLoader, Environment
from starlette.responses import PlainTextResponse

from loragate.panel.origins import Origins
from loragate.panel.page_headers import PageHeaders, _WithNonces


def test_only_the_templates_own_scripts_get_the_nonce() -> None:
    template = '<script type="module">start("{{ name }}")</script><scripted>{{ html | safe }}<script\n>end()</script>'
    environment = Environment(loader=_WithNonces(DictLoader({"page": template})), autoescape=True)
    request = SimpleNamespace(state=SimpleNamespace(csp_nonce="n0nce"))
    page = environment.get_template("page").render(request=request, name="me", html="<script>steal()</script>")
    assert page == (
        '<script nonce="n0nce" type="module">start("me")</script><scripted><script>steal()</script>'
        '<script nonce="n0nce"\n>end()</script>'
    )


@pytest.mark.parametrize(
    ("scheme", "public_url", "seconds", "sent"),
    [
        ("https", None, 3600, "max-age=3600"),
        ("http", "https://panel.example.org", 3600, "max-age=3600"),  # a proxy ends TLS
        ("http", None, 3600, None),
        ("https", None, 0, None),
    ],
)
async def test_over_tls_browsers_are_asked_to_use_nothing_else(
    scheme: str, public_url: str | None, seconds: int, sent: str | None
) -> None:
    app = PageHeaders(PlainTextResponse("a page"), Origins(public_url), seconds)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://localhost") as browser:
        assert (await browser.get("/")).headers.get("strict-transport-security") == sent
