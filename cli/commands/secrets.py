"""`loragate secrets …`: the installation's secret keys."""

from dataclasses import asdict
from typing import Annotated

import typer

from loragate.cli import options

app = typer.Typer(
    no_args_is_help=True,
    help="""Replace the secret key of an installation while its API keys stay valid.

Run these commands on the server's machine: they use its database and data directory.
Example: `loragate secrets rotate`, restart the server, and a day later `loragate secrets list`
""",
)

_COLUMNS = ("id", "state", "is_current", "since", "api_keys", "admin_keys", "sealed")


@app.command("list")
def list_(
    as_json: options.AsJson = False,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """List the secrets by id, newest first, with the time at which each was first used, and the numbers of keys that
    depend on it: those that were not used since a rotation. Secrets themselves are never shown.

    `state` is primary or accepted, or missing for one that the database refers to and the settings do not have.
    `is_current` marks the one that servers use.

    Example: `loragate secrets list`
    """
    from loragate.adapter_store.timestamps import rfc3339
    from loragate.cli.client.terminal.output import show_rows
    from loragate.cli.data_dir.secret_rotation import uses
    from loragate.cli.settings.load import load

    found = uses(load(data_dir=data_dir, config=config))
    show_rows([asdict(each) | {"since": rfc3339(each.since)} for each in found], _COLUMNS, as_json=as_json)


@app.command()
def rotate(data_dir: options.DataDir = None, config: options.Config = None) -> None:
    """Make a new secret the primary one, in the data directory; the old one is kept beside it. The server that runs is
    not affected until its next start.

    Where LORAGATE_SECRET_KEY is set, print a new secret, and how to bring it to all replicas.

    Example: `loragate secrets rotate --data-dir /var/lib/loragate`
    """
    from loragate.cli.data_dir.secret_rotation import rotate as make_new
    from loragate.cli.settings.load import load

    new, steps = make_new(load(data_dir=data_dir, config=config))
    typer.echo(steps, err=True)
    if new is not None:
        typer.echo(new)


@app.command()
def retire(
    secret_id: Annotated[str, typer.Argument(metavar="ID", help="The secret's id, from `loragate secrets list`.")],
    force: Annotated[bool, typer.Option(help="Revoke the keys that depend on it.")] = False,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Stop accepting an old secret. Keys that depend on it prevent this, unless --force revokes them.

    Example: `loragate secrets retire 5f0c31d2a9be`
    """
    from loragate.cli.data_dir.secret_rotation import retire as stop_accepting
    from loragate.cli.settings.load import load

    typer.echo(stop_accepting(load(data_dir=data_dir, config=config), secret_id, force=force))
