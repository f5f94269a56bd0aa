"""`loragate backup` and `loragate restore`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loragate.cli import options

if TYPE_CHECKING:
    from loragate.adapter_store.backup.replay import NewEpoch
    from loragate.cli.settings.model import Settings

_KEY_COLUMNS = ("id", "tenant", "name", "created_at", "last_used_at")


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


def restore(
    source: Annotated[Path | None, typer.Argument(help="The backup: a folder, or a tar file.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the tenants that the database has, and another secret key.")
    ] = False,
    revoke_keys: Annotated[bool, typer.Option("--revoke-keys", help="Revoke the keys of all tenants.")] = False,
    keep_keys: Annotated[
        bool,
        typer.Option(
            "--keep-keys", help="Without a journal, let all keys of the backup work, and list them for your review."
        ),
    ] = False,
    journal: Annotated[
        str | None,
        typer.Option(help="The old blob store, a folder or URL, whose journal knows which keys were revoked since."),
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Confirm what was restored, so that the sweep removes bytes again.")
    ] = False,
    data_dir: options.DataDir = None,
    config: options.Config = None,
) -> None:
    """Restore a backup while the server is stopped, into a new installation or, with `--replace`, over an old one.

    All bytes are verified first. Keys that were revoked after the backup stay revoked, and version numbers that were
    given after it are not given again. No bytes are swept until you have checked the result and given `--confirm`.

    Examples:

    - `loragate restore /backups/2030-01-31 --data-dir /srv/loragate`
    - `loragate restore /backups/loragate.tar --journal /mnt/old/.loragate/blobs`
    - `loragate restore --confirm`
    """
    from loragate.cli.errors import BAD_SETTING, CliError
    from loragate.cli.settings.load import load

    if (source is None) is not confirm:
        raise CliError("give a backup to restore, or --confirm, and not both", BAD_SETTING)
    settings = load(data_dir=data_dir, config=config)
    if source is None:
        _confirm(settings)
        return

    import asyncio

    from loragate.adapter_store.backup.restore import RestoreOptions
    from loragate.cli.client.terminal.progress import byte_progress
    from loragate.cli.recovery.restore import restore_backup

    chosen = RestoreOptions(replace=replace, revoke_keys=revoke_keys, keep_keys=keep_keys, journal_url=journal)
    with byte_progress("restoring") as report:
        manifest, epoch = asyncio.run(restore_backup(settings, source, chosen, report))
    typer.echo(f"restored the backup of {manifest.created_at:%Y-%m-%d %H:%M} UTC; this is epoch {epoch.number}")
    _explain(epoch, list_keys=keep_keys)


def _confirm(settings: "Settings") -> None:
    import asyncio

    from loragate.cli.recovery.restore import confirm_restoration

    waited = asyncio.run(confirm_restoration(settings))
    typer.echo("confirmed: bytes are swept again" if waited else "no restoration waits for a confirmation")


def _explain(epoch: "NewEpoch", *, list_keys: bool) -> None:
    from loragate.cli.client.terminal.output import show_rows

    typer.echo(f"{epoch.revoked} keys were revoked, because they were revoked after the backup or by --revoke-keys")
    typer.echo(f"new versions of adapters start at {epoch.version_floor + 1}")
    if epoch.deleted_tenants:
        names = ", ".join(epoch.deleted_tenants)
        typer.echo(f"deleted after the backup, and now back without keys: {names}")
    if epoch.admin_key_removed:
        typer.echo("the admin key was replaced after the backup: the next start takes LORAGATE_ADMIN_KEY, or makes one")
    if list_keys and epoch.valid_keys:
        typer.echo("keys that work now, also if they were revoked after the backup:")
        rows = [
            {
                "id": key.id,
                "tenant": key.tenant,
                "name": key.name,
                "created_at": key.created_at.isoformat(timespec="seconds"),
                "last_used_at": None if key.last_used_at is None else key.last_used_at.isoformat(timespec="seconds"),
            }
            for key in epoch.valid_keys
        ]
        show_rows(rows, _KEY_COLUMNS, as_json=False)
    typer.echo("no bytes are swept until you have checked the result and run `loragate restore --confirm`")
