"""`loragate engine`."""

from typing import Annotated

import typer

from loragate.cli import options


def engine(
    model: options.Model = None,
    listen: Annotated[
        str | None, typer.Option(help="unix:/path or host:port for its gRPC. [default: 127.0.0.1:50100]")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32 or bfloat16. [default: auto]")] = None,
    adapter_slots: Annotated[
        int | None, typer.Option(help="Adapters on the device at once; more of them page. [default: 16]")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Longest prompt and completion, in tokens. [default: the model's]")
    ] = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Start the engine alone. `loragate serve` does it for you; this is for one part per container.

    Its port is for gateways only: keep it off public networks.

    Examples:

    - `loragate engine --model ~/models/Llama-3.2-1B-Instruct`
    - `loragate engine --model Qwen/Qwen3-0.6B --listen 0.0.0.0:50100 --adapter-slots 64`
    """
    from loragate.cli.refusal import BAD_SETTING, Refusal
    from loragate.cli.settings.load import load
    from loragate.engine.runtime.log_format import log_to_stderr

    given = {"listen": listen, "dtype": dtype, "adapter_slots": adapter_slots, "max_model_len": max_model_len}
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = load(model=model, data_dir=data_dir, config=config, engine=chosen or None)
    if settings.model is None:
        raise Refusal("no model to serve: give --model DIR_OR_HUB_ID (LORAGATE_MODEL)", BAD_SETTING)
    log_to_stderr(settings.log_format)

    from loragate.engine.server.server import run

    run(settings.engine.config(settings.model, settings.data_dir))
