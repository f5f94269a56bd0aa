"""Asks a model a question with OpenAI's client and prints the answer while it is generated.

    python examples/chat.py pirate "What is the capital of France?"

Reads LORAGATE_BASE_URL and LORAGATE_API_KEY. Needs `pip install openai`.
"""

import os
import sys

import openai

model, question = sys.argv[1:]
address = os.environ.get("LORAGATE_BASE_URL", "http://127.0.0.1:8000")
# A request over a limit is repeated after the time that the server names.
client = openai.OpenAI(base_url=f"{address}/v1", api_key=os.environ["LORAGATE_API_KEY"], max_retries=5)
try:
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage is not None:
            print(f"\n({chunk.usage.total_tokens} tokens)")
except openai.APIStatusError as error:
    sys.exit(f"{error.status_code}: {error.message}")
