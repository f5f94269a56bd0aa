"""Files of JSON lines that are uploaded; training files are validated locally with the server's checks before."""

from pathlib import Path

from loragate.cli.client.http.api import Api
from loragate.cli.client.terminal.progress import transfer_progress
from loragate.cli.client.transfer.parts import SMALL_BYTES, send_in_parts
from loragate.cli.errors import CliError

_UPLOADED = "file-"  # how ids of files begin


def validate_if_local(given: str, method: str, min_examples: int) -> None:
    """Validate `given` if it is a local file and not the id of an uploaded one.

    Raise CliError with the line and reason of each problem.
    """
    file = local_file(given)
    if file is not None:
        validate(file, method, min_examples)


def file_id(api: Api, given: str) -> str:
    """Return `given` if it is the id of an uploaded file, else upload the local file and return its id.

    Raise CliError.
    """
    file = local_file(given)
    return given if file is None else send(api, file, "fine-tune")


def validate(file: Path, method: str, min_examples: int) -> None:
    """Check everything that can be checked without the base model. Raise CliError."""
    from loragate.finetune.data.formats import Method
    from loragate.finetune.data.validation import validate as validate_file

    with transfer_progress() as progress, file.open("rb") as source:
        task = progress.add_task(f"validating {file.name}", total=file.stat().st_size)
        report = validate_file(source, lambda done: progress.update(task, completed=done))
        progress.update(task, completed=file.stat().st_size)
    reason = report.rejection(Method(method), min_examples)
    if report.problems:
        reason = "\n  ".join(report.problems_by_line)
    if reason is not None:
        raise CliError(f"{file} cannot be used for training and was not uploaded: {reason}")


def local_file(given: str) -> Path | None:
    """Return the local file; None if `given` is the id of an uploaded one. Raise CliError."""
    file = Path(given).expanduser()
    if not file.exists() and given.startswith(_UPLOADED):
        return None
    if not file.is_file():
        raise CliError(f"there is no file {given}")
    return file


def send(api: Api, file: Path, purpose: str) -> str:
    """Upload a file for this purpose, with a progress bar on stderr, and return its id."""
    size = file.stat().st_size
    with transfer_progress() as progress:
        task = progress.add_task(f"uploading {file.name}", total=size)
        if size > SMALL_BYTES:
            return send_in_parts(api, file, progress, task, purpose)
        with progress.open(file, "rb", task_id=task) as content:
            sent = api.call("POST", "/v1/files", data={"purpose": purpose}, files={"file": (file.name, content)})
    return str(sent["id"])
