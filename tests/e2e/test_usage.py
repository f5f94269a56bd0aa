"""The real server bills what its clients received, within seconds of their last byte."""

from typing import Any

import openai
from running_server import client as http_client
from running_server import until

from loragate.gateway.metering.ledger import SETTLE_SECONDS

SETTLED_WITHIN = 5.0  # seconds, as the contract has it; with time to spare, so that the test depends on no clock


def _totals(http: Any, path: str) -> dict[str, int]:
    answer = http.get(path)
    assert answer.status_code == 200, answer.text
    totals: dict[str, int] = answer.json()["totals"]
    return {name: totals[name] for name in ("requests", "prompt_tokens", "completion_tokens")}


def test_usage_is_settled_often_enough() -> None:
    assert 2 * SETTLE_SECONDS < SETTLED_WITHIN


def test_billed_usage_equals_reported_usage(tenants: Any) -> None:
    server = tenants.server
    key = server.add_tenant("metered")
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=key) as client:
        usages = [
            client.chat.completions.create(
                model="tiny-llama", messages=[{"role": "user", "content": "who"}], max_tokens=7
            ).usage,
            client.completions.create(model="tiny-llama", prompt="what is", max_tokens=9, n=2).usage,
        ]
        stream = client.completions.create(
            model="tiny-llama", prompt="who", max_tokens=12, stream=True, stream_options={"include_usage": True}
        )
        usages += [chunk.usage for chunk in stream if chunk.usage is not None]
    expected = {
        "requests": 3,
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages if usage),
        "completion_tokens": sum(usage.completion_tokens for usage in usages if usage),
    }
    with http_client(server.base_url, key) as http:
        until(lambda: _totals(http, "/v1/usage") == expected)
