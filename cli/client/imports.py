"""Imports that the server makes, watched until they end."""

import os
import time
from typing import Any

from loragate.cli.client.http.api import Api
from loragate.cli.client.http.paths import path
from loragate.cli.client.terminal.progress import transfer
from loragate.cli.refusal import BAD_SETTING, Refusal

_ENDS = ("ready", "failed", "cancelled")
_LOOK_SECONDS = 0.5


def import_adapter(api: Api, source: str, name: str, alias: str | None, token: str | None) -> dict[str, Any]:
    """The import once it is ready. Raises Refusal with the server's words when it is not; Ctrl-C cancels it."""
    given = {"source": source, "name": name, "alias": alias, "token": token}
    begun = api.call("POST", "/v1/imports", json={field: value for field, value in given.items() if value is not None})
    here = path("v1", "imports", begun["id"])
    try:
        done = _watched(api, here, begun)
    except KeyboardInterrupt:
        api.call("DELETE", here)
        raise Refusal(f"the import {begun['id']} is cancelled") from None
    if done["status"] != "ready":
        words = done["error"]["message"] if done["error"] else "it was cancelled"
        raise Refusal(f"the import {done['id']} has failed: {words}")
    return done


def hub_token() -> str:
    """From where the hub's own tools have it. Raises Refusal when it is not there."""
    token = os.environ.get("HF_TOKEN")
    if not token:
        raise Refusal("HF_TOKEN is not set", BAD_SETTING)
    return token


def _watched(api: Api, here: str, found: dict[str, Any]) -> dict[str, Any]:
    with transfer() as progress:
        task = progress.add_task(found["status"], total=None)
        while found["status"] not in _ENDS:
            time.sleep(_LOOK_SECONDS)
            found = api.call("GET", here)
            progress.update(
                task, description=found["status"], completed=found["bytes_done"], total=found["bytes_total"]
            )
    return found
