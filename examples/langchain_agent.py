"""Runs an agent of LangChain that calls a tool to answer.

    python examples/langchain_agent.py loragate-demo "What is the weather in Paris?"

Reads LORAGATE_BASE_URL and LORAGATE_API_KEY. Needs `pip install langchain langchain-openai`.
"""

import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def get_weather(city: str) -> str:
    """Get weather for a given city."""
    return f"It's always sunny in {city}!"


model, question = sys.argv[1:]
address = os.environ.get("LORAGATE_BASE_URL", "http://127.0.0.1:8000")
chat = ChatOpenAI(model=model, base_url=f"{address}/v1", api_key=os.environ["LORAGATE_API_KEY"])
agent = create_agent(chat, tools=[get_weather], system_prompt="You are a helpful assistant.")
for message in agent.invoke({"messages": [{"role": "user", "content": question}]})["messages"]:
    for call in getattr(message, "tool_calls", []):
        print(f"calls {call['name']}({call['args']})", file=sys.stderr)
print(message.content)
