"""Input files of batches, and their results."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from openai import AsyncOpenAI
from openai.types import Batch

from tests.gateway.tiny_model import MODEL_ID

CHAT = "/v1/chat/completions"
ENDED = ("completed", "failed", "expired", "cancelled")


def chat_line(custom_id: str, content: str = "Hello.", **body: Any) -> dict[str, Any]:
    chat = {"model": MODEL_ID, "messages": [{"role": "user", "content": content}], "max_tokens": 8}
    return request_line(custom_id, CHAT, chat | body)


def request_line(custom_id: str, url: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def jsonl(lines: Iterable[Any]) -> bytes:
    return "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines).encode()


async def create(client: AsyncOpenAI, lines: Iterable[Any], endpoint: Any = CHAT, **more: Any) -> Batch:
    """Upload a file of these lines, and create a batch of it."""
    file = await client.files.create(file=("requests.jsonl", jsonl(lines)), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window=more.pop("completion_window", "24h"), **more
    )


async def ended(client: AsyncOpenAI, batch: Batch) -> Batch:
    """Return the batch once it has ended."""
    async with asyncio.timeout(20):
        while batch.status not in ENDED:
            await asyncio.sleep(0.02)
            batch = await client.batches.retrieve(batch.id)
    return batch


async def results(client: AsyncOpenAI, file_id: str | None) -> dict[str, dict[str, Any]]:
    """Return the lines of an output or error file by their custom ids, of which each is there once."""
    if file_id is None:
        return {}
    lines = [json.loads(line) for line in (await client.files.content(file_id)).text.splitlines()]
    found = {line["custom_id"]: line for line in lines}
    assert len(found) == len(lines), "a line is there twice"
    return found
