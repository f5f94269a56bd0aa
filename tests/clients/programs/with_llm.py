"""The `llm` program: an answer, a stream, a schema, a tool, a conversation that goes on."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ADAPTER, BASE, BASE_URL, KEY, PLACE, QUESTION, SECOND, UNKNOWN_MODEL, WEATHER, WRONG_KEY, report

MODEL = """\
- model_id: our-{model}
  model_name: {model}
  api_base: {base_url}
  api_key_name: ours
  supports_schema: true
  supports_tools: true
"""
WEATHER_TOOL = """
def get_weather(city: str) -> str:
    "Get the weather for a city."
    return "sunny, 21 °C" if city == "Helsinki" else "unknown"
"""


def llm(folder: str, *arguments: str, key: str = KEY) -> str:
    program = str(Path(sys.executable).with_name("llm"))
    environment = os.environ | {"LLM_USER_PATH": folder}
    done = subprocess.run([program, *arguments, "--key", key], env=environment, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip()


with tempfile.TemporaryDirectory() as folder:
    models = "".join(MODEL.format(model=model, base_url=BASE_URL) for model in (ADAPTER, BASE, UNKNOWN_MODEL))
    Path(folder, "extra-openai-models.yaml").write_text(models)
    ours = ("-m", f"our-{ADAPTER}")
    schema = json.dumps(PLACE)
    report(
        answer=llm(folder, *ours, "--no-stream", QUESTION),
        streamed=llm(folder, *ours, "-s", "Be brief.", QUESTION),
        second_turn=llm(folder, "--continue", SECOND),
        structured=json.loads(llm(folder, *ours, "--schema", schema, QUESTION)),
        tool=llm(folder, "-m", f"our-{BASE}", "--functions", WEATHER_TOOL, WEATHER),
        wrong_key=llm(folder, *ours, QUESTION, key=WRONG_KEY),
        unknown_model=llm(folder, "-m", f"our-{UNKNOWN_MODEL}", QUESTION),
    )
