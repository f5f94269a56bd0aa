"""`loragate finetune-worker` and `loragate trainer`."""

from typing import Annotated

import typer

from loragate.cli import options


def finetune_worker(
    model: options.Model = None,
    engine_target: Annotated[
        str | None, typer.Option(help="The engine's unix:/path or host:port. [default: 127.0.0.1:50100]")
    ] = None,
    engine: options.Engine = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    name: Annotated[str | None, typer.Option(hidden=True, help="A name that no other worker has.")] = None,
) -> None:
    """Start only a fine-tuning worker, for an engine and a gateway that run elsewhere. `loragate serve` starts one for
    you.

    It trains one job at a time; tenants take turns. On SIGTERM it saves a checkpoint and returns the job to the queue.

    Examples:

    - `loragate finetune-worker --model ~/models/Llama-3.2-1B-Instruct --engine-target engine:50100`
    - `LORAGATE_FINETUNE__DEVICE=cuda:1 loragate finetune-worker --model Qwen/Qwen3-0.6B`
    """
    from loragate.adapter_store.errors import StoreError
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.settings.load import load
    from loragate.cli.standalone.finetune_worker import service_config
    from loragate.engine.model.errors import ModelRejected
    from loragate.engine.runtime.log_format import log_to_stderr
    from loragate.finetune.worker.process import run

    settings = load(
        model=model, engine_target=engine_target, engine_targets=engine or None, data_dir=data_dir, config=config
    )
    log_to_stderr(settings.log_format)
    try:
        run(service_config(settings, name))
    except ModelRejected as error:
        raise CliError(str(error), BAD_SETTING) from None
    except StoreError as error:
        raise CliError(error.message) from None


def trainer(
    model: options.Model = None,
    engine_target: Annotated[
        str | None, typer.Option(help="The engine's unix:/path or host:port. [default: 127.0.0.1:50100]")
    ] = None,
    engine: options.Engine = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    name: Annotated[str | None, typer.Option(hidden=True, help="A name that no other trainer has.")] = None,
) -> None:
    """Start only a trainer, which runs the commands of the training API (`/api/v1`), for an engine and a gateway that
    run elsewhere. `loragate serve --trainer` starts one for you.

    It keeps one base model in memory and trains the adapters of many tenants on it in turns. On SIGTERM it gives its
    runs back; another trainer, or this one after a restart, continues them from their last snapshot.

    Examples:

    - `loragate trainer --model ~/models/Llama-3.2-1B-Instruct --engine-target engine:50100`
    - `LORAGATE_TRAINER__MAX_BYTES=8000000000 loragate trainer --model Qwen/Qwen3-0.6B`
    """
    from loragate.adapter_store.errors import StoreError
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.settings.load import load
    from loragate.cli.standalone.trainer import trainer_config
    from loragate.engine.model.errors import ModelRejected
    from loragate.engine.runtime.log_format import log_to_stderr
    from loragate.trainer.worker.process import run

    settings = load(
        model=model, engine_target=engine_target, engine_targets=engine or None, data_dir=data_dir, config=config
    )
    log_to_stderr(settings.log_format)
    try:
        run(trainer_config(settings, name))
    except ModelRejected as error:
        raise CliError(str(error), BAD_SETTING) from None
    except StoreError as error:
        raise CliError(error.message) from None
