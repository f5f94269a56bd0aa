"""Commands as they are typed."""

import pytest
from typer.testing import CliRunner, Result

from loragate.cli.main import app
from tests.cli.running import ADMIN_KEY


def run(*arguments: str, status: int = 0, typed: str | None = None) -> Result:
    """What it printed. It must end with this status."""
    result = CliRunner().invoke(app, arguments, input=typed)
    assert result.exit_code == status, result.output
    return result


def as_new_tenant(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has all commands speak to this server as a tenant that it did not have before."""
    monkeypatch.setenv("LORAGATE_BASE_URL", f"{url}/v1")  # as the openai client wants it
    run("tenants", "create", "acme", "--admin-key", ADMIN_KEY)
    monkeypatch.setenv("LORAGATE_API_KEY", run("keys", "create", "acme", "--admin-key", ADMIN_KEY).stdout.strip())
