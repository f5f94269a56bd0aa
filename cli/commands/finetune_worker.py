"""`loragate finetune-worker`."""

from typing import Annotated

import typer

from loragate.cli import options


def finetune_worker(
    model: options.Model = None,
    engine_target: Annotated[
        str | None, typer.Option(help="The engine's unix:/path or host:port. [default: 127.0.0.1:50100]")
    ] = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    name: Annotated[str | None, typer.Option(hidden=True, help="Ours alone among all workers.")] = None,
) -> None:
    """Start one fine-tune worker alone, beside an engine and a gateway that run elsewhere. `loragate serve` does it for
    you.

    It trains one job at a time, of whichever tenant's turn it is. SIGTERM makes it keep where it is and give the job
    back.

    Examples:

    - `loragate finetune-worker --model ~/models/Llama-3.2-1B-Instruct --engine-target engine:50100`
    - `LORAGATE_FINETUNE__DEVICE=cuda:1 loragate finetune-worker --model Qwen/Qwen3-0.6B`
    """
    from loragate.adapter_store.errors import StoreError
    from loragate.cli.refusal import BAD_SETTING, Refusal
    from loragate.cli.settings.load import load
    from loragate.cli.standalone.finetune_worker import service_config
    from loragate.engine.model.errors import ModelRejected
    from loragate.engine.runtime.log_format import log_to_stderr
    from loragate.finetune.worker.process import run

    settings = load(model=model, engine_target=engine_target, data_dir=data_dir, config=config)
    log_to_stderr(settings.log_format)
    try:
        run(service_config(settings, name))
    except ModelRejected as refused:
        raise Refusal(str(refused), BAD_SETTING) from None
    except StoreError as error:
        raise Refusal(error.message) from None
