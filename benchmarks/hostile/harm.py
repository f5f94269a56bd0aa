"""What an exploit costs beside the guest's latencies. Each context measures around one attack, into `found`."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.hostile.server import Server

MB = 1 << 20
_TRAINING_SECONDS = 45.0
_CANCEL_SECONDS = 5.0
_ENDED = ("succeeded", "failed", "cancelled")
_LINE = json.dumps({"messages": [{"role": r, "content": "good day"} for r in ("user", "assistant")]}) + "\n"


@contextmanager
def memory(server: Server, found: dict[str, Any]) -> Iterator[None]:
    """Record the memory that the gateway has taken by the attack's end."""
    before = server.gateway.memory_info().rss
    yield
    found["gateway_mb_added"] = round((server.gateway.memory_info().rss - before) / MB)


@contextmanager
def training(server: Server, found: dict[str, Any]) -> Iterator[None]:
    """Record the seconds until a job of the guest has succeeded, and those from the order to cancel the attacker's to
    its end; None where it takes longer than 45 seconds."""
    yield
    with server.client_of("guest") as guest, server.client_of("attacker") as attacker:
        file = guest.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("a.jsonl", _LINE * 16)}).json()
        base = guest.get("/v1/models").json()["data"][0]["id"]
        numbers = {"n_epochs": 1, "batch_size": 8, "max_length": 64}
        method = {"type": "supervised", "supervised": {"hyperparameters": numbers}}
        body = {"model": base, "training_file": file["id"], "method": method}
        job = guest.post("/v1/fine_tuning/jobs", json=body).raise_for_status().json()["id"]
        theirs = attacker.get("/v1/fine_tuning/jobs").json()["data"][0]["id"]
        time.sleep(_CANCEL_SECONDS)
        attacker.post(f"/v1/fine_tuning/jobs/{theirs}/cancel")
        found |= {"guests_job_seconds": None, "cancel_seconds": None}
        cancelled = time.monotonic()
        while time.monotonic() < cancelled + _TRAINING_SECONDS and None in found.values():
            waited = time.monotonic() - cancelled
            if found["cancel_seconds"] is None and _status(attacker, theirs) in _ENDED:
                found |= {"cancel_seconds": round(waited, 1), "attackers_job": _status(attacker, theirs)}
            if found["guests_job_seconds"] is None and _status(guest, job) in _ENDED:
                found |= {"guests_job_seconds": round(waited + _CANCEL_SECONDS, 1), "guests_job": _status(guest, job)}
            time.sleep(0.25)


def _status(client: httpx.Client, job: str) -> str:
    try:
        return str(client.get(f"/v1/fine_tuning/jobs/{job}").json()["status"])
    except httpx.TransportError:
        return "unknown"


@contextmanager
def disk(server: Server, found: dict[str, Any]) -> Iterator[None]:
    """Record the bytes that uploads under way hold, and what becomes of an upload of the guest."""
    yield
    found["megabytes_held"] = round(_spooled(server.gateway) / MB, 1)
    began = time.monotonic()
    with server.client_of("guest") as guest:
        form: Any = {"data": {"purpose": "fine-tune"}, "files": {"file": ("a.jsonl", _LINE)}}
        found["guests_upload"] = guest.post("/v1/files", **form).status_code
    found["guests_upload_seconds"] = round(time.monotonic() - began, 2)


def _spooled(process: psutil.Process) -> int:
    """Return the bytes on the disk of a process's files in the folder of uploads, which have no names."""
    held = 0
    for file in Path(f"/proc/{process.pid}/fd").iterdir():
        try:
            if "/uploads/" in os.readlink(file):
                held += 512 * os.stat(file).st_blocks
        except FileNotFoundError:
            continue
    return held


@contextmanager
def storage(server: Server, found: dict[str, Any]) -> Iterator[None]:
    """Record the bytes of the blobs and of the database that the attack has added."""
    before = _stored(server.data_dir)
    yield
    for name, size in _stored(server.data_dir).items():
        found[f"{name}_mb_added"] = round((size - before[name]) / MB, 1)


def _stored(data_dir: Path) -> dict[str, int]:
    return {name: sum(map(_size, data_dir.rglob(pattern))) for name, pattern in _STORED.items()}


_STORED = {"blobs": "blobs/**/*", "database": "loragate.db*"}


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except FileNotFoundError:
        return 0


@contextmanager
def panel(server: Server, found: dict[str, Any]) -> Iterator[None]:
    """Record the memory that the panel has taken, and the connections that it holds."""
    process = server.panel
    before = process.memory_info().rss
    yield
    found["panel_mb_added"] = round((process.memory_info().rss - before) / MB)
    found["panel_connections"] = sum(each.status == "ESTABLISHED" for each in process.net_connections("tcp"))
