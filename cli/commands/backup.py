"""`loragate backup`."""

from pathlib import Path
from typing import Annotated

import typer

from loragate.cli import options


def backup(
    target: Annotated[
        Path, typer.Argument(help="Where to write: a new or empty folder, or a new file whose name ends with .tar.")
    ],
    without_secret: Annotated[
        bool, typer.Option("--without-secret", help="Leave out the secret key; a restoration then needs it.")
    ] = False,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Back up the database, the bytes of adapters and files, the secret key and unsettled usage records, while the
    server may be running.

    The backup contains secrets: only you can read it. An interrupted one has no `manifest.json`, and cannot be
    restored.

    Examples:

    - `loragate backup /backups/2030-01-31`
    - `loragate backup /backups/loragate.tar --without-secret`
    """
    import asyncio

    from loragate.cli.client.terminal.progress import byte_progress
    from loragate.cli.recovery.backup import make_backup
    from loragate.cli.settings.load import load

    settings = load(data_dir=data_dir, config=config)
    with byte_progress("backing up") as report:
        manifest = asyncio.run(make_backup(settings, target, with_secret=not without_secret, progress=report))
    for name in manifest.missing:
        typer.echo(f"warning: {name} does not exist, although the database refers to it", err=True)
    typer.echo(f"{target}: {len(manifest.files)} files, {manifest.size} bytes")
