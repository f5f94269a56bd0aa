"""A request as code. The key is a variable, so that no key is copied with the code."""

import json
import shlex
from pprint import pformat

from loragate.panel.api import Json


def as_curl(base_url: str, body: Json, path: str = "/v1/chat/completions") -> str:
    """Return the request as a curl command."""
    data = json.dumps(body, ensure_ascii=False, indent=2)
    return (
        f"curl {base_url}{path} \\\n"
        '  -H "Authorization: Bearer $LORAGATE_API_KEY" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(data)}"
    )


def as_python(base_url: str, body: Json) -> str:
    """Return the request as Python with OpenAI's client."""
    arguments = "".join(f"    {name}={pformat(value, width=88)},\n" for name, value in body.items())
    return (
        "import os\n\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(base_url={f"{base_url}/v1"!r}, api_key=os.environ["LORAGATE_API_KEY"])\n'
        f"answer = client.chat.completions.create(\n{arguments})\n"
        "print(answer.choices[0].message.content)"
    )
