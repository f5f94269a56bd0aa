"""Runs commands as a user types them."""

import pytest
from typer.testing import CliRunner, Result

from loragate.cli.main import app
from tests.cli.running import ADMIN_KEY


def run(*arguments: str, status: int = 0, typed: str | None = None) -> Result:
    """Run a command, which must end with this status; return its output."""
    result = CliRunner().invoke(app, arguments, input=typed)
    assert result.exit_code == status, result.output
    return result


def as_new_tenant(url: str, monkeypatch: pytest.MonkeyPatch, name: str = "acme") -> None:
    """Set the environment so that all commands use this server as a new tenant of this name."""
    monkeypatch.setenv("LORAGATE_BASE_URL", f"{url}/v1")  # as the openai client expects it
    run("tenants", "create", name, "--admin-key", ADMIN_KEY)
    monkeypatch.setenv("LORAGATE_API_KEY", run("keys", "create", name, "--admin-key", ADMIN_KEY).stdout.strip())
