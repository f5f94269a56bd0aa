"""Sends requests with the `llm` program, and prints the results as JSON. Arguments: base URL, key, model."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

MODEL = """\
- model_id: ours
  model_name: {model}
  api_base: {base_url}
  api_key_name: ours
  supports_schema: true
- model_id: nobodys
  model_name: nobodys
  api_base: {base_url}
  api_key_name: ours
"""


def main(base_url: str, key: str, model: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "extra-openai-models.yaml").write_text(MODEL.format(model=model, base_url=base_url))

        def llm(*arguments: str) -> subprocess.CompletedProcess[str]:
            program = str(Path(sys.executable).with_name("llm"))
            environment = {**os.environ, "LLM_USER_PATH": folder}
            return subprocess.run(
                [program, *arguments, "--key", key], env=environment, capture_output=True, text=True, timeout=60
            )

        asked = {
            "answer": llm("-m", "ours", "--no-stream", "Hello"),
            "streamed": llm("-m", "ours", "-s", "Be brief.", "Hello"),
            "place": llm("-m", "ours", "--schema", "city str: where it is", "Where is it?"),
        }
        rejected = llm("-m", "nobodys", "Hello")
    for name, done in asked.items():
        assert done.returncode == 0, f"{name}: {done.stderr}"
    said = {name: done.stdout.strip() for name, done in asked.items()}
    return {**said, "place": json.loads(said["place"]), "rejected": rejected.stderr}


print(json.dumps(main(*sys.argv[1:])))
