"""`loragate demo keys`: what a shell evaluates."""

import os
import subprocess
from pathlib import Path

import pytest

from loragate.demo.demo_file import DemoFile, TenantRecord, write_demo_file
from tests.cli.command_runner import run

pytestmark = pytest.mark.usefixtures("alone")


def exported(printed: str, *names: str) -> list[str]:
    """Return the variables of a shell that has evaluated what was printed."""
    script = 'eval "$0"; shift 0; for name in "$@"; do printenv "$name"; done'
    done = subprocess.run(
        ["bash", "-ec", script, printed, *names], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write(admin_key: str, name: str, api_key: str) -> None:
    write_demo_file(Path(".loragate"), DemoFile(admin_key, "", (TenantRecord(name, "tn_1", api_key, ()),)))


def test_keys_are_exported_under_the_tenants_names() -> None:
    write("lg-admin-1", "acme", "lg-2")
    assert exported(run("demo", "keys").stdout, "ACME_KEY", "ADMIN_KEY") == ["lg-2", "lg-admin-1"]


def test_a_file_of_somebody_else_runs_no_command() -> None:
    write("$(touch ran)", "a; touch ran;", "x; touch ran")
    assert exported(run("demo", "keys").stdout, "A__TOUCH_RAN__KEY", "ADMIN_KEY") == ["x; touch ran", "$(touch ran)"]
    assert not Path("ran").exists()
