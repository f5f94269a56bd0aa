"""`loragate gateway` and `loragate panel`: what `loragate serve` starts beside the engine, alone."""

from typing import Annotated

import typer

from loragate.cli import options


def gateway(
    engine_target: Annotated[
        str | None, typer.Option(help="The engine's unix:/path or host:port. [default: 127.0.0.1:50100]")
    ] = None,
    engine: options.Engine = None,
    host: options.Host = None,
    port: options.Port = None,
    grpc_port: options.GrpcPort = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_client_ca: options.TlsClientCa = None,
    forwarded_allow_ips: options.ForwardedAllowIps = None,
    drain_seconds: options.DrainSeconds = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    descriptor: Annotated[
        int | None, typer.Option(hidden=True, help="A listening socket inherited from the supervisor.")
    ] = None,
    grpc_address: Annotated[
        str | None, typer.Option(hidden=True, help="The gRPC address, reserved by the supervisor for all gateways.")
    ] = None,
) -> None:
    """Start only a gateway, for an engine that runs elsewhere. `loragate serve` starts one for you.

    Examples:

    - `loragate gateway --engine-target engine:50100 --host 0.0.0.0`
    - `LORAGATE_DATABASE_URL=postgresql://loragate@db/loragate loragate gateway --engine-target engine:50100`
    """
    import socket

    from loragate.cli.settings.load import load
    from loragate.cli.standalone.gateway import gateway_config, prepare
    from loragate.cli.standalone.ports import address_of, listen, reserve
    from loragate.cli.standalone.tls import check_tls, warn_about_tls
    from loragate.engine.runtime.interpreter import without_collection
    from loragate.engine.runtime.log_format import log_to_stderr
    from loragate.gateway.http.access_log import show_requests

    settings = load(
        engine_target=engine_target,
        engine_targets=engine or None,
        host=host,
        port=port,
        grpc_port=grpc_port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        forwarded_allow_ips=forwarded_allow_ips,
        drain_seconds=drain_seconds,
        data_dir=data_dir,
        config=config,
    )
    log_to_stderr(settings.log_format)
    show_requests(settings.access_log)
    check_tls(settings)
    if descriptor is None or grpc_address is None:
        warn_about_tls(settings)
        prepare(settings)
        listener = listen(settings.host, settings.port)
        held = reserve(settings.host, settings.grpc_port)
        grpc_address = address_of(held)
    else:
        listener = socket.socket(fileno=descriptor)

    with without_collection():
        from loragate.gateway.server import run

    run(gateway_config(settings, grpc_address), listener)


def panel(
    gateway_url: Annotated[
        str | None, typer.Option(help="The HTTP API's address. [default: http://127.0.0.1:8000]")
    ] = None,
    host: options.Host = None,
    panel_port: options.PanelPort = None,
    tls_cert: options.TlsCert = None,
    tls_key: options.TlsKey = None,
    tls_client_ca: options.TlsClientCa = None,
    forwarded_allow_ips: options.ForwardedAllowIps = None,
    config: options.Config = None,
    descriptor: Annotated[
        int | None, typer.Option(hidden=True, help="A listening socket inherited from the supervisor.")
    ] = None,
) -> None:
    """Start only the web panel, for a gateway that runs elsewhere. `loragate serve` starts one for you.

    Sessions are held in memory: run only one panel; after a restart, users have to sign in again.

    Examples:

    - `loragate panel --gateway-url http://gateway:8000 --host 0.0.0.0`
    - `LORAGATE_PANEL__PUBLIC_URL=https://panel.example.org loragate panel --gateway-url http://gateway:8000`
    """
    import socket

    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.optional_dependencies import INSTALL_PANEL, is_panel_installed
    from loragate.cli.settings.load import load
    from loragate.cli.standalone.panel import panel_config
    from loragate.cli.standalone.ports import PANEL, listen
    from loragate.cli.standalone.tls import check_tls, warn_about_tls
    from loragate.engine.runtime.interpreter import without_collection
    from loragate.engine.runtime.log_format import log_to_stderr

    if not is_panel_installed():
        raise CliError(f"the web panel's packages are not installed: {INSTALL_PANEL}", BAD_SETTING)
    given = {} if gateway_url is None else {"panel": {"gateway_url": gateway_url}}
    settings = load(
        host=host,
        panel_port=panel_port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        forwarded_allow_ips=forwarded_allow_ips,
        config=config,
        **given,
    )
    log_to_stderr(settings.log_format)
    check_tls(settings)
    if descriptor is None:
        warn_about_tls(settings)
        listener = listen(settings.host, settings.panel_port, PANEL)
    else:
        listener = socket.socket(fileno=descriptor)

    with without_collection():
        from loragate.panel.server import run

    run(panel_config(settings), listener)
