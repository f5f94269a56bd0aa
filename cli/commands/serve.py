"""`loragate serve`."""

from typing import Annotated

import typer

from loragate.cli import options


def serve(
    model: options.Model = None,
    demo: Annotated[
        bool | None,
        typer.Option(
            "--demo", help="Serve a tiny model with three tenants and their adapters, which come with the package."
        ),
    ] = None,
    host: options.Host = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    panel_port: options.PanelPort = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of gateway processes; more than one needs Redis. [default: 1]", rich_help_panel="Server"
        ),
    ] = None,
    engines: Annotated[
        int | None, typer.Option(help="Number of engine processes. [default: 1]", rich_help_panel="Server")
    ] = None,
    engine: options.Engine = None,
    trainer: Annotated[
        bool | None,
        typer.Option("--trainer", help="Start a trainer for the training API, too.", rich_help_panel="Server"),
    ] = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_client_ca: options.TlsClientCa = None,
    forwarded_allow_ips: options.ForwardedAllowIps = None,
    drain_seconds: options.DrainSeconds = None,
    verbose: options.Verbose = False,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Start the server: the engine, the gateway, the web panel, a fine-tuning worker, and a supervisor that restarts
    them.

    Prints `loragate ready` on stdout once requests are served. The first SIGTERM or Ctrl-C lets running requests
    finish; a second one stops the server immediately.

    Examples:

    - `loragate serve --demo`
    - `loragate serve --model ~/models/Llama-3.2-1B-Instruct --port 9000`
    - `loragate serve --model ./model --host 0.0.0.0 --tls-cert fullchain.pem --tls-key privkey.pem`
    - `LORAGATE_ENGINE__DTYPE=bfloat16 loragate serve --model Qwen/Qwen3-0.6B`
    """
    import asyncio

    from loragate.engine.runtime.interpreter import without_collection

    with without_collection():
        from loragate.cli.settings.load import load
        from loragate.cli.supervisor.serve import serve as run

    settings = load(
        model=model,
        demo=demo,
        host=host,
        port=port,
        grpc_port=grpc_port,
        panel_port=panel_port,
        workers=workers,
        engines=engines,
        engine_targets=engine or None,
        trainer=None if trainer is None else {"enabled": trainer},
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        forwarded_allow_ips=forwarded_allow_ips,
        drain_seconds=drain_seconds,
        log_format="text" if verbose else None,
        data_dir=data_dir,
        config=config,
    )
    raise typer.Exit(asyncio.run(run(settings)))
