"""`loragate panel`."""

from typing import Annotated

import typer

from loragate.cli import options


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
