"""locust, until each request was made: users of OpenAI's API, and plain ones, which also read a stream."""

import os
from typing import Any

os.environ["OPENAI_API_KEY"] = os.environ["LORAGATE_API_KEY"]  # which locust's user reads
os.environ["OPENAI_BASE_URL"] = os.environ["LORAGATE_BASE_URL"] + "/v1"
import gevent
from common import ADAPTER, KEY, QUESTION, SERVER, UNKNOWN_MODEL, WRONG_KEY, report
from locust import HttpUser, task
from locust.contrib.oai import OpenAIUser
from locust.env import Environment

KINDS = 5  # of requests, by name


def body(**more: Any) -> dict[str, Any]:
    return {"model": ADAPTER, "messages": [{"role": "user", "content": QUESTION}], **more}


class Chatting(OpenAIUser):
    @task
    def ask(self) -> None:
        with self.client.rename_request("openai"):
            self.client.chat.completions.create(**body())


class Posting(HttpUser):
    host = SERVER

    def post(self, name: str, status: int, key: str = KEY, **more: Any) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        sent: dict[str, Any] = {"json": body(**more), "headers": headers, "name": name, "catch_response": True}
        with self.client.post("/v1/chat/completions", **sent) as response:
            right = response.status_code == status
            response.success() if right else response.failure(f"status {response.status_code}")

    @task
    def ask(self) -> None:
        self.post("answer", 200)
        self.post("streamed", 200, stream=True)
        self.post("wrong_key", 401, key=WRONG_KEY)
        self.post("unknown_model", 404, model=UNKNOWN_MODEL)


environment = Environment(user_classes=[Chatting, Posting])
runner = environment.create_local_runner()
runner.start(2, spawn_rate=2)
while len(environment.stats.entries) < KINDS:
    gevent.sleep(0.1)
runner.quit()
report(clean={each.name: each.num_requests > each.num_failures == 0 for each in environment.stats.entries.values()})
