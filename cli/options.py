"""Options that several commands share. None means: not given on the command line."""

from pathlib import Path
from typing import Annotated

import typer

_SERVER = "Server"
_CLIENT = "Connection"

Config = Annotated[Path | None, typer.Option(help="The settings file. [default: loragate.toml, if it exists]")]
DataDir = Annotated[Path | None, typer.Option(help="The directory for all data. [default: .loragate]")]
Host = Annotated[
    str | None, typer.Option(help="The address to listen on. [default: 127.0.0.1]", rich_help_panel=_SERVER)
]
Port = Annotated[
    int | None, typer.Option(help="The REST port; 0 picks a free one. [default: 8000]", rich_help_panel=_SERVER)
]
GrpcPort = Annotated[
    int | None,
    typer.Option(help="The port of the gRPC services; 0 picks a free one. [default: 50051]", rich_help_panel=_SERVER),
]
PanelPort = Annotated[
    int | None,
    typer.Option(help="The port of the web panel; 0 picks a free one. [default: 8001]", rich_help_panel=_SERVER),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(help="The certificate of the ports, PEM. [default: no TLS]", rich_help_panel=_SERVER),
]
TlsKey = Annotated[Path | None, typer.Option(help="The key of the certificate, PEM.", rich_help_panel=_SERVER)]
TlsClientCa = Annotated[
    Path | None,
    typer.Option(
        help="Authorities that sign clients' certificates, PEM: only such clients are served. [default: any client]",
        rich_help_panel=_SERVER,
    ),
]
ForwardedAllowIps = Annotated[
    str | None,
    typer.Option(
        help="Proxies whose X-Forwarded-For and -Proto are believed: addresses and networks. [default: none]",
        rich_help_panel=_SERVER,
    ),
]
DrainSeconds = Annotated[
    float | None,
    typer.Option(help="How long running requests may take after SIGTERM. [default: 25]", rich_help_panel=_SERVER),
]
Model = Annotated[
    str | None,
    typer.Option(help="The base model: a directory, or a Hugging Face hub id, best with a commit: org/name@commit."),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        help="The server's address. [default: the server that uses the data directory]", rich_help_panel=_CLIENT
    ),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        help="A tenant's key, or @FILE that contains it. Other users can see the command line: prefer @FILE or "
        "LORAGATE_API_KEY. [default: the key of the demo's first tenant]",
        rich_help_panel=_CLIENT,
    ),
]
AdminKey = Annotated[
    str | None,
    typer.Option(
        help="The admin key, or @FILE that contains it. Other users can see the command line: prefer @FILE or "
        "LORAGATE_ADMIN_KEY. [default: the demo's admin key]",
        rich_help_panel=_CLIENT,
    ),
]
Engine = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        help="A further engine's unix:/path or host:port, or ID=ADDRESS; may be repeated. Engines with an address to "
        "advertise are found without it.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip confirmation.")]
AdapterName = Annotated[str, typer.Argument(help="The adapter's name.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Write the log of all parts on a terminal, too.", rich_help_panel=_SERVER),
]
