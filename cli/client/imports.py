"""Imports by the server, followed to their end."""

import os
import re
import time
from typing import Any

from loragate.cli.client.http.api import Api, path
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.errors import BAD_SETTING, CliError

_FINAL_STATUSES = ("ready", "failed", "cancelled")
_POLL_SECONDS = 0.5
_HUB = re.compile(r"(hf://([^/@]+/[^/@]+)[^@]*)(?:@(.+))?")
_COMMIT = re.compile("[0-9a-f]{40}")


def import_adapter(api: Api, source: str, name: str, alias: str | None, token: str | None) -> dict[str, Any]:
    """Start an import, wait for it, and return it. Ctrl-C cancels it.

    Raise CliError with the server's message when the import fails.
    """
    given = {"source": source, "name": name, "alias": alias, "token": token}
    begun = api.call("POST", "/v1/imports", json={field: value for field, value in given.items() if value is not None})
    here = path("v1", "imports", begun["id"])
    try:
        done = _poll(api, here, begun)
    except KeyboardInterrupt:
        api.call("DELETE", here)
        raise CliError(f"the import {begun['id']} was cancelled") from None
    if done["status"] != "ready":
        words = done["error"]["message"] if done["error"] else "it was cancelled"
        raise CliError(f"the import {done['id']} failed: {words}")
    return done


def with_commit(source: str, token: str | None) -> str:
    """Return a hub's source with a commit: the one that its branch or tag names now, or the newest one.

    `HF_ENDPOINT` replaces the hub, as for the hub's own tools. Raise CliError if the hub returns none.
    """
    found = _HUB.fullmatch(source)
    if found is None or _COMMIT.fullmatch(found[3] or ""):
        return source
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    try:
        commit = HfApi(token=token or False).model_info(found[2], revision=found[3]).sha
    except (OSError, HFValidationError) as error:
        raise CliError(f"the hub returned no commit of {source}: {error}") from None
    return f"{found[1]}@{commit}"


def hub_token() -> str:
    """Return the token from `HF_TOKEN`, which the hub's own tools use. Raise CliError when it is not set."""
    token = os.environ.get("HF_TOKEN")
    if not token:
        raise CliError("HF_TOKEN is not set", BAD_SETTING)
    return token


def _poll(api: Api, here: str, found: dict[str, Any]) -> dict[str, Any]:
    with transfer_progress() as progress:
        task = progress.add_task(found["status"], total=None)
        while found["status"] not in _FINAL_STATUSES:
            time.sleep(_POLL_SECONDS)
            found = api.call("GET", here)
            progress.update(
                task, description=found["status"], completed=found["bytes_done"], total=found["bytes_total"]
            )
    return found
