"""`loragate engine` and `loragate engine-trace`."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options


def engine(
    model: options.Model = None,
    listen: Annotated[
        str | None, typer.Option(help="The gRPC address: unix:/path or host:port. [default: 127.0.0.1:50100]")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="The data type: auto, float32, bfloat16 or float16. [default: auto]")
    ] = None,
    adapter_slots: Annotated[
        int | None, typer.Option(help="How many adapters fit on the device; further ones are paged. [default: 16]")
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="Maximum length of prompt and completion, in tokens. [default: the model's]")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="What computes: loragate, or vllm in an environment of its own. [default: loragate]"),
    ] = None,
    vllm_python: Annotated[
        Path | None, typer.Option(help="The Python of vLLM's environment. [default: the one that runs this command]")
    ] = None,
    tensor_parallel_size: Annotated[
        int | None, typer.Option(help="How many GPUs share each layer, with the backend vllm. [default: 1]")
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="The address at which gateways reach it: they find it in the database while it runs."),
    ] = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_client_ca: options.TlsClientCa = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Start only the engine, for example in a container of its own. `loragate serve` starts it for you.

    Only gateways and fine-tuning workers need to reach its port. They bring a secret with each call, which all derive
    from LORAGATE_SECRET_KEY, or have as LORAGATE_ENGINE_SECRET. An address beyond this machine needs TLS with
    certificates on both sides, which `loragate certs` makes.

    Examples:

    - `loragate engine --model ~/models/Llama-3.2-1B-Instruct`
    - `loragate engine --model ./model --listen 127.0.0.1:50101 --advertise 127.0.0.1:50101`
    - `loragate engine --model Qwen/Qwen3-0.6B --listen 0.0.0.0:50100 --tls-cert gpu-1.pem --tls-key gpu-1.key
      --tls-client-ca ca.pem`
    - `loragate engine --model ./model --backend vllm --vllm-python vllm-env/bin/python`
    """
    import asyncio

    from loragate.cli.data_dir.preparation import engine_secrets, make_data_dir
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.settings.load import load
    from loragate.cli.standalone.tls import check_tls
    from loragate.engine.runtime.interpreter import without_collection
    from loragate.engine.runtime.log_format import log_to_stderr

    given = {
        "listen": listen,
        "advertise": advertise,
        "dtype": dtype,
        "adapter_slots": adapter_slots,
        "max_model_len": max_model_len,
        "backend": backend,
        "vllm_python": vllm_python,
        "tensor_parallel_size": tensor_parallel_size,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    settings = load(
        model=model,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        data_dir=data_dir,
        config=config,
        engine=chosen or None,
    )
    if settings.model is None:
        raise CliError("no model to serve: give --model DIR_OR_HUB_ID (LORAGATE_MODEL)", BAD_SETTING)
    log_to_stderr(settings.log_format)
    check_tls(settings)
    make_data_dir(settings)
    if settings.engine.advertise is not None:
        from loragate.cli.supervisor.registered_engine import run_registered

        raise typer.Exit(asyncio.run(run_registered(settings)))
    secret, *previous = engine_secrets(settings)
    engine_config = settings.engine.config(
        settings.model,
        settings.data_dir,
        secret=secret,
        previous_secrets=tuple(previous),
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        tls_client_ca=settings.tls_client_ca,
    )

    from loragate.engine.model.checkpoint import check_path
    from loragate.engine.model.errors import exit_if_rejected
    from loragate.engine.server.access import check_access

    try:
        check_access(engine_config)
    except ValueError as error:
        raise CliError(str(error), BAD_SETTING) from None
    if engine_config.backend == "vllm":
        from loragate.cli.standalone.vllm_engine import run_in_vllm

        run_in_vllm(engine_config, settings.engine.vllm_python, settings.log_format)
    with exit_if_rejected():
        check_path(engine_config.model)  # before the libraries are imported, which takes seconds
    with without_collection():
        from loragate.engine.server.server import run

    run(engine_config)


def engine_trace(
    file: Annotated[Path, typer.Argument(help="The file to write; an existing file is replaced.")],
    steps: Annotated[
        int, typer.Option(min=0, help="How many of the last steps to write; 0: all that the engine remembers.")
    ] = 0,
    engine_id: Annotated[str | None, typer.Option("--engine", help="The engine's id. [default: the first]")] = None,
    base_url: options.BaseUrl = None,
    admin_key: options.AdminKey = None,
    data_dir: options.DataDir = None,
) -> None:
    """Write an engine's last steps as a timeline. https://ui.perfetto.dev displays the file without uploading it.

    Needs the admin key. Example: `loragate engine-trace trace.json --steps 500`
    """
    from loragate.cli.client.http.api import path
    from loragate.cli.client.http.connect import as_operator
    from loragate.cli.errors import CliError

    with as_operator(base_url, admin_key, data_dir) as api:
        wanted = engine_id or api.call("GET", "/admin/v1/engines")["data"][0]["id"]
        where = path("admin", "v1", "engines", wanted, "trace")
        with api.stream("GET", where, params={"steps": steps}) as response:
            document = response.read()
    try:
        file.write_bytes(document)
    except OSError as error:
        raise CliError(f"cannot write {file}: {error.strerror}") from None
    typer.echo(f"wrote {file}: open it at https://ui.perfetto.dev")
