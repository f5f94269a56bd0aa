"""All findings, printed with advice."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loragate.cli.doctor.finding import Finding, Status, fail
from loragate.cli.errors import CliError
from loragate.cli.settings.load import load

_STYLES = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "bold red"}


def examine(**options: object) -> list[Finding]:
    """Run all checks with these settings. Invalid settings are a finding, too."""
    from loragate.cli.doctor.accelerator import check_accelerator
    from loragate.cli.doctor.machine import check_machine
    from loragate.cli.doctor.services import check_services
    from loragate.cli.doctor.training import check_training
    from loragate.cli.settings.model import Settings

    try:
        settings = load(**options)
    except CliError as error:
        problem = fail("settings", error.message, "correct it; the checks below use the defaults")
        settings = Settings.model_construct()
        return [problem, *check_machine(settings.data_dir.absolute()), *check_accelerator()]
    machine = [*check_machine(settings.data_dir), *check_accelerator(), *check_training(settings)]
    return [*machine, *check_services(settings)]


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print one line for each finding on stdout."""
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        status = Text(finding.status.value, style=_STYLES[finding.status])
        what = Text(finding.found)
        if finding.advice:
            what.append(f"\n→ {finding.advice}", style="dim")
        table.add_row(status, Text(finding.subject, style="bold"), what)
    Console().print(table)


def failed(findings: Sequence[Finding]) -> bool:
    """Return whether any check failed."""
    return any(finding.status is Status.FAIL for finding in findings)
