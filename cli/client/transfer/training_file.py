"""A training file on its way to the server: looked at here first, as the server will look at it."""

from pathlib import Path

from loragate.cli.client.http.api import Api
from loragate.cli.client.terminal.progress import transfer
from loragate.cli.client.transfer.parts import SMALL_BYTES, send_in_parts
from loragate.cli.refusal import Refusal

_UPLOADED = "file-"  # how ids of files begin
_PURPOSE = "fine-tune"


def look_at(given: str, method: str, fewest: int) -> None:
    """If it is a file here, and no id of one that is there already. Raises Refusal, with lines and reasons."""
    file = _here(given)
    if file is not None:
        check(file, method, fewest)


def file_id(api: Api, given: str) -> str:
    """Of a file that is there already, by its id, or of one here, sent. Raises Refusal."""
    file = _here(given)
    return given if file is None else _send(api, file)


def check(file: Path, method: str, fewest: int) -> None:
    """As far as it can be told without the base model. Raises Refusal."""
    from loragate.finetune.data.formats import Method
    from loragate.finetune.data.validation import validate

    with transfer() as progress, file.open("rb") as source:
        task = progress.add_task(f"looking at {file.name}", total=file.stat().st_size)
        report = validate(source, lambda done: progress.update(task, completed=done))
        progress.update(task, completed=file.stat().st_size)
    refusal = report.rejection(Method(method), fewest)
    if report.problem_count:
        refusal = "\n  ".join(report.problems_by_line)
    if refusal is not None:
        raise Refusal(f"{file} cannot be trained on, and was not sent: {refusal}")


def _here(given: str) -> Path | None:
    file = Path(given).expanduser()
    if not file.exists() and given.startswith(_UPLOADED):
        return None
    if not file.is_file():
        raise Refusal(f"there is no file {given}")
    return file


def _send(api: Api, file: Path) -> str:
    size = file.stat().st_size
    with transfer() as progress:
        task = progress.add_task(f"uploading {file.name}", total=size)
        if size > SMALL_BYTES:
            return send_in_parts(api, file, progress, task, _PURPOSE)
        with progress.open(file, "rb", task_id=task) as content:
            sent = api.call("POST", "/v1/files", data={"purpose": _PURPOSE}, files={"file": (file.name, content)})
    return str(sent["id"])
