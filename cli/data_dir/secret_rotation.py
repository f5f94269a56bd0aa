"""The secret keys of an installation, replaced one by one while API keys stay valid."""

import asyncio

from loragate.adapter_store.auth.secret_key import SecretKeys, secret_id
from loragate.adapter_store.auth.secret_key_file import FILE_NAME, add_secret_key, new_secret_key, remove_secret_key
from loragate.adapter_store.auth.secret_use import PRIMARY, Dependents, SecretUse, secret_uses
from loragate.adapter_store.database.database import Database
from loragate.adapter_store.database.schema import require_compatible
from loragate.adapter_store.errors import StoreError
from loragate.adapter_store.store import Store
from loragate.cli.data_dir.preparation import secret_keys
from loragate.cli.errors import CliError
from loragate.cli.settings.model import Settings

_MOST_SHOWN = 10


def uses(settings: Settings) -> list[SecretUse]:
    """Return the secrets and how many keys depend on each. Raises CliError. Nothing is changed."""
    try:
        return asyncio.run(_uses(settings, _existing(settings)))
    except StoreError as error:
        raise CliError(error.message) from None


def rotate(settings: Settings) -> tuple[str | None, str]:
    """Make a new primary secret. Return it if the user has to set it, else None; and what to do next."""
    old = _existing(settings).ids[0]
    if settings.secret_key is None:
        new = add_secret_key(settings.data_dir).ids[0]
        return None, (
            f"The secret {new} is the primary one from the next start on; what was made with {old} stays valid. "
            "Restart the server when you like. A day later or more, when `loragate secrets list` shows no keys for "
            f"{old}: `loragate secrets retire {old}`."
        )
    text = new_secret_key()
    new = secret_id(text.encode())
    return text, (
        f"On stdout is a new secret, {new}. The present one, {old}, is set as LORAGATE_SECRET_KEY, so change the "
        "settings of all replicas, workers and engines, in this order:\n"
        "1. Add the new one to LORAGATE_PREVIOUS_SECRET_KEYS, and restart them one by one. Now all accept it.\n"
        "2. Set LORAGATE_SECRET_KEY to the new one, put the old one into LORAGATE_PREVIOUS_SECRET_KEYS, and restart "
        "them one by one. Now all use it.\n"
        f"3. A day later or more, when `loragate secrets list` shows no keys for {old}: "
        f"`loragate secrets retire {old}`, and remove the old one from LORAGATE_PREVIOUS_SECRET_KEYS."
    )


def retire(settings: Settings, retired: str, *, force: bool) -> str:
    """Stop accepting a secret; with `force`, revoke the keys that depend on it. Return what to report.

    Raises CliError for the primary secret, for an unknown one and, without `force`, if keys depend on it.
    """
    found = {each.id: each for each in uses(settings)}
    use = found.get(retired)
    if use is None:
        raise CliError(f"there is no secret {retired}; there are {', '.join(found)}")
    if use.state == PRIMARY or use.is_current:
        raise CliError(
            f"{retired} is the primary secret: run `loragate secrets rotate` and restart the server before you "
            "retire this one"
        )
    if use.keys and not force:
        raise CliError(
            f"keys depend on {retired} (API keys: {use.api_keys}, admin keys: {use.admin_keys}). Each moves to the "
            "primary secret when it is used, so try again later, or revoke them with --force"
        )
    if use.sealed and not force:
        raise CliError(
            f"stored responses are sealed with {retired} (rows: {use.sealed}). Gateways that run reseal them within "
            "minutes, so try again later, or lose them with --force"
        )
    try:
        lost = asyncio.run(_retire(settings, retired))
    except StoreError as error:
        raise CliError(error.message) from None
    if settings.secret_key is None:
        remove_secret_key(settings.data_dir, retired)
    rest = (
        "Remove it from LORAGATE_PREVIOUS_SECRET_KEYS where it is set, and restart the server; until then, processes "
        "that run accept it."
    )
    return "\n".join((f"{retired} is retired.", *_report(use, lost), rest))


def _existing(settings: Settings) -> SecretKeys:
    """Return the secrets, without creating any. Raise CliError where no server has run."""
    given = settings.secret_key is not None
    if not given and not (settings.data_dir / FILE_NAME).exists():
        raise CliError(
            f"there are no secrets in {settings.data_dir}: name the server's data directory with --data-dir, or "
            "set the LORAGATE_SECRET_KEY that it has"
        )
    if settings.database_url is None and not (settings.data_dir / "loragate.db").exists():
        raise CliError(
            f"there is no database in {settings.data_dir}: name the server's with --data-dir or LORAGATE_DATABASE_URL"
        )
    return secret_keys(settings)


async def _uses(settings: Settings, keys: SecretKeys) -> list[SecretUse]:
    database = Database(settings.effective_database_url)
    try:
        await require_compatible(database)
        async with database.operator() as session:
            return await secret_uses(session, keys)
    finally:
        await database.close()


async def _retire(settings: Settings, retired: str) -> Dependents:
    keys, url = secret_keys(settings), settings.effective_database_url
    store = await Store.open(url, settings.effective_blob_url, keys.primary, previous_secret_keys=keys.previous)
    try:
        async with store.admin(write=True) as admin:
            return await admin.secrets.retire(retired)
    finally:
        await store.close()


def _report(use: SecretUse, lost: Dependents) -> list[str]:
    """Return what stops working, and which keys these are."""
    lines = []
    for name, ids in (("API keys", lost.api_keys), ("admin keys", lost.admin_keys)):
        if ids:
            more = f", and {len(ids) - _MOST_SHOWN} more" if len(ids) > _MOST_SHOWN else ""
            lines.append(f"Revoked {name} ({len(ids)}): {', '.join(ids[:_MOST_SHOWN])}{more}.")
    others = use.keys - len(lost.api_keys) - len(lost.admin_keys)
    if others > 0:
        lines.append(
            f"Other keys ({others}) may stop working: the installation's admin key, which LORAGATE_ADMIN_KEY replaces, "
            "or keys whose secret is not known."
        )
    if use.sealed:
        lines.append(f"Rows of stored responses that can no longer be read: {use.sealed}.")
    return lines
