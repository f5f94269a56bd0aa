"""A FastAPI route that parses a chat request and returns a fixed text: the baseline of `throughput`."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()


class Message(BaseModel):
    role: str
    content: str


class Chat(BaseModel):
    model: str
    messages: list[Message]
    max_tokens: int
    temperature: float


@app.get("/healthz")
async def healthz() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/chat/completions")
async def chat(body: Chat) -> dict[str, Any]:
    message = {"role": "assistant", "content": " fox" * body.max_tokens}
    usage = {"prompt_tokens": 30, "completion_tokens": body.max_tokens, "total_tokens": 30 + body.max_tokens}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "chatcmpl-0", "object": "chat.completion", "model": body.model, "choices": choices, "usage": usage}
