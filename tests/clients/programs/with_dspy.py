"""DSPy: a declared provider, whose predictions ask for a schema; LiteLLM's `openai/` models; a tool."""

from typing import Any, Literal

import dspy
from common import (
    ADAPTER,
    BASE,
    BASE_URL,
    CITIES,
    KEY,
    QUESTION,
    SECOND,
    UNKNOWN_MODEL,
    WEATHER,
    WRONG_KEY,
    failure,
    get_weather,
    report,
)
from dspy.lm15 import AccessPolicy, ModelSupport, OpenAIChatCompat, ProviderDefinition, register_provider

ours = AccessPolicy(provider="loragate", env_keys=("LORAGATE_API_KEY",), base_url=BASE_URL)
register_provider(
    ProviderDefinition.chat(ours, compat=OpenAIChatCompat.preset("openai")),
    supports=ModelSupport(function_calling=True, response_schema=True),
)


def lm(model: str = ADAPTER, key: str = KEY, provider: str = "loragate") -> Any:
    more = {} if provider == "loragate" else {"api_base": BASE_URL}
    return dspy.LM(f"{provider}/{model}", api_key=key, num_retries=0, cache=False, **more)


class Place(dspy.Signature):
    """Name the city."""

    question: str = dspy.InputField()
    city: Literal["Rome", "Oslo", "Paris"] = dspy.OutputField()


def predicted() -> str:
    """Return a city: the demo was not trained with DSPy's prompts, so only the schema makes its answer one."""
    with dspy.context(lm=lm(BASE), adapter=dspy.JSONAdapter()):
        return str(dspy.Predict(Place)(question=QUESTION).city)


def called() -> Any:
    (answer,) = lm(BASE)(WEATHER, tools=[dspy.Tool(get_weather).format_as_litellm_function_call()])
    (call,) = answer["tool_calls"]
    return call["function"]["arguments"]


def second_turn() -> Any:
    first = {"role": "user", "content": QUESTION}
    answer = {"role": "assistant", "content": lm()(QUESTION)[0]}
    return lm()(messages=[first, answer, {"role": "user", "content": SECOND}])[0]


report(
    answer=lm()(QUESTION)[0],
    follows_the_schema=predicted() in CITIES,
    called=called(),
    second_turn=second_turn(),
    litellm=lm(provider="openai")(QUESTION)[0],
    wrong_key=failure(lambda: lm(key=WRONG_KEY)(QUESTION)),
    unknown_model=failure(lambda: lm(UNKNOWN_MODEL)(QUESTION)),
)
