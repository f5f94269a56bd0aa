"""What the supervisor prints while a server starts: for scripts, and for a person at a terminal."""

import sys
from pathlib import Path

import pytest

from loragate.cli.data_dir.runtime_file import Addresses
from loragate.cli.settings.load import load
from loragate.cli.supervisor.notifications import Notifications

KEY = "lg-admin-a-key-for-tests"
PRINTED = f"admin key, shown only once: {KEY}\n"
WHERE = Addresses("http://127.0.0.1:8000", "127.0.0.1:50051", "http://127.0.0.1:8001")


def open_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


def start(notifications: Notifications) -> None:
    notifications.stage("starting the engine and the gateway")
    notifications.admin_key(KEY)
    notifications.waiting("the gateway")
    notifications.waiting("the engine")
    notifications.waiting("database (unreachable)")


def test_scripts_get_the_key_at_once_and_all_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    start(Notifications())
    shown = capsys.readouterr()
    assert shown.out == PRINTED
    assert shown.err.splitlines() == [
        f"loragate: waiting for {part}" for part in ("the gateway", "the engine", "database (unreachable)")
    ]


def test_a_person_gets_a_line_per_stage_and_the_key_with_the_addresses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    open_terminal(monkeypatch)
    notifications = Notifications()
    start(notifications)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("==> starting the engine and the gateway\n")
    assert "the gateway\n" not in shown.err.partition("\n")[2]
    assert "database (unreachable)" in shown.err
    notifications.ready(load(data_dir=tmp_path, model="any"), WHERE)
    assert capsys.readouterr().out == f"{PRINTED}loragate ready\n"
    notifications.end()
    assert capsys.readouterr().out == ""


def test_a_key_is_printed_when_the_start_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_terminal(monkeypatch)
    notifications = Notifications()
    notifications.admin_key(KEY)
    notifications.end()
    assert capsys.readouterr().out == PRINTED


def test_a_person_may_ask_for_the_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    open_terminal(monkeypatch)
    start(Notifications("text"))
    assert "waiting for the engine" in capsys.readouterr().err
