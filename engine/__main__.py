"""Run the engine alone, on a machine that has only torch, transformers and grpc:

python -m loragate.engine --model ./my-model --listen 127.0.0.1:7000 --cache-dir /var/cache/loragate

With `--backend vllm` it runs in the environment of vLLM (docs/vllm.md).
LORAGATE_ENGINE_SECRET must be the one that gateways have. LORAGATE_PREVIOUS_ENGINE_SECRETS, separated by commas, are
accepted beside it.
"""

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from loragate.engine.config import EngineConfig
from loragate.engine.model.checkpoint import check_path
from loragate.engine.model.errors import exit_if_rejected
from loragate.engine.runtime.log_format import log_to_stderr
from loragate.engine.server.access import check_access

_VARIABLE = "LORAGATE_ENGINE_SECRET"
_PREVIOUS_VARIABLE = "LORAGATE_PREVIOUS_ENGINE_SECRETS"
_LOG_FORMAT = "LORAGATE_LOG_FORMAT"
_SECRETS = ("secret", "previous_secrets")  # every user of the machine can read a command line


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m loragate.engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for field in dataclasses.fields(EngineConfig):
        if field.name in _SECRETS:
            continue
        required = field.default is dataclasses.MISSING
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            required=required,
            default=None if required else field.default,
            **_parsing(field),
            help="required" if required else f"default: {field.default}",
        )
    arguments = parser.parse_args()
    form = os.environ.get(_LOG_FORMAT)
    log_to_stderr("json" if form == "json" else "text" if form == "text" else "auto")
    try:
        previous = os.environ.get(_PREVIOUS_VARIABLE, "").split(",")
        config = EngineConfig(
            **vars(arguments),
            secret=os.environ.get(_VARIABLE, ""),
            previous_secrets=tuple(each.strip() for each in previous if each.strip()),
        )
        check_access(config)
        check_backend(config)
    except ValueError as error:
        parser.error(str(error))
    run(config)


def check_backend(config: EngineConfig) -> None:
    """Raise ValueError for a setting that the backend has no counterpart for."""
    if config.backend == "vllm":
        from loragate.engine.vllm_backend.attach import check_options

        check_options(config)


def run(config: EngineConfig) -> None:
    """Serve with the backend that the configuration names. Only what that backend needs is imported, and nothing for a
    model that does not exist."""
    with exit_if_rejected():
        check_path(config.model)
    if config.backend == "vllm":
        from loragate.engine.vllm_backend.run import run as run_backend
    else:
        from loragate.engine.server.server import run as run_backend
    run_backend(config)


def _parsing(field: "dataclasses.Field[object]") -> dict[str, Any]:
    if field.type is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(field.type) is Literal:
        return {"choices": get_args(field.type)}
    for kind in (Path, int, float):
        if field.type in (kind, kind | None):
            return {"type": kind}
    return {"type": str}


if __name__ == "__main__":
    main()
