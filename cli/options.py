"""Options that several commands share. None means: not given here, see the environment and the file."""

from pathlib import Path
from typing import Annotated

import typer

_SERVER = "Server"
_CLIENT = "Connection"

Config = Annotated[Path | None, typer.Option(help="Settings file. [default: loragate.toml, if there]")]
DataDir = Annotated[Path | None, typer.Option(help="Everything that is kept. [default: .loragate]")]
Host = Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]", rich_help_panel=_SERVER)]
Port = Annotated[
    int | None, typer.Option(help="REST port; 0 picks a free one. [default: 8000]", rich_help_panel=_SERVER)
]
GrpcPort = Annotated[
    int | None,
    typer.Option(
        help="Port of the tenants' gRPC services; 0 picks a free one. [default: 50051]", rich_help_panel=_SERVER
    ),
]
PanelPort = Annotated[
    int | None, typer.Option(help="Port of the web panel; 0 picks a free one. [default: 8001]", rich_help_panel=_SERVER)
]
DrainSeconds = Annotated[
    float | None,
    typer.Option(help="Running requests get this long after SIGTERM. [default: 25]", rich_help_panel=_SERVER),
]
Model = Annotated[str | None, typer.Option(help="Base model: a directory or a Hugging Face hub id.")]
BaseUrl = Annotated[
    str | None,
    typer.Option(help="The server. [default: the one that runs in the data directory]", rich_help_panel=_CLIENT),
]
ApiKey = Annotated[
    str | None,
    typer.Option(
        help="A tenant's key; better in LORAGATE_API_KEY or OPENAI_API_KEY. [default: the demo's first tenant's]",
        rich_help_panel=_CLIENT,
    ),
]
AdminKey = Annotated[
    str | None,
    typer.Option(help="The admin key; better in LORAGATE_ADMIN_KEY. [default: the demo's]", rich_help_panel=_CLIENT),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip confirmation.")]
AdapterName = Annotated[str, typer.Argument(help="The adapter's name.")]
