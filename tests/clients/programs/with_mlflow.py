"""MLflow: traces of OpenAI's client, and an evaluation whose predictions come from the server."""

import os
import tempfile
from typing import Any

os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false"}
import mlflow
from common import ADAPTER, BASE_URL, KEY, QUESTION, SECOND, UNKNOWN_MODEL, WRONG_KEY, failure, report
from openai import OpenAI

client = OpenAI(base_url=BASE_URL, api_key=KEY, max_retries=0)


def ask(question: str, model: str = ADAPTER, client: Any = client) -> Any:
    messages = [{"role": "user", "content": question}]
    return client.chat.completions.create(model=model, messages=messages).choices[0].message.content


def streamed() -> str:
    stream = client.chat.completions.create(
        model=ADAPTER, messages=[{"role": "user", "content": QUESTION}], stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@mlflow.genai.scorer
def names_the_city(outputs: str, expectations: dict[str, str]) -> bool:
    return expectations["city"] in outputs


with tempfile.TemporaryDirectory() as folder:
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment("demo")
    mlflow.openai.autolog()
    answer = ask(QUESTION)
    traced = mlflow.get_trace(mlflow.get_last_active_trace_id())
    asked = [
        {"inputs": {"question": question}, "expectations": {"city": city}}
        for question, city in ((QUESTION, "Paris"), (SECOND, "Rome"))
    ]
    evaluated = mlflow.genai.evaluate(data=asked, predict_fn=ask, scorers=[names_the_city])
    report(
        answer=answer,
        streamed=streamed(),
        evaluated=evaluated.metrics["names_the_city/mean"],
        traced=bool(traced.info.token_usage),
        wrong_key=failure(lambda: ask(QUESTION, client=OpenAI(base_url=BASE_URL, api_key=WRONG_KEY))),
        unknown_model=failure(lambda: ask(QUESTION, UNKNOWN_MODEL)),
    )
