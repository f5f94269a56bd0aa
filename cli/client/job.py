"""A tenant's view of a fine-tuning job over the API."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from loragate.cli.client.http.api import Api, path
from loragate.cli.errors import BAD_SETTING, CliError

JOBS = "/v1/fine_tuning/jobs"
WAITING = ("validating_files", "queued", "running")
_PAGE = 100

Document = dict[str, Any]


def job_path(job_id: str, *more: str) -> str:
    """Return the path of a job, or of a resource below it."""
    return path("v1", "fine_tuning", "jobs", job_id, *more)


def new_events(api: Api, job_id: str, seen: str | None) -> list[Document]:
    """Return the events after the one with the id `seen`, oldest first; all of them for None."""
    return list(_newest_first(api, job_id, seen))[::-1]


def _newest_first(api: Api, job_id: str, seen: str | None) -> Iterator[Document]:
    after: str | None = None
    while True:
        parameters = {"limit": _PAGE} | ({"after": after} if after else {})
        page = api.call("GET", job_path(job_id, "events"), params=parameters)
        for event in page["data"]:
            if event["id"] == seen:
                return
            yield event
        if not page["has_more"]:
            return
        after = page["data"][-1]["id"]


def parse_hyperparameters(given: Sequence[str]) -> Document:
    """Parse `name=value` texts. A value that is not JSON is taken as a string. Raise CliError."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals or not value:
            raise CliError(f"{text!r} is not NAME=VALUE, such as n_epochs=3", BAD_SETTING)
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def validated(method: str, given: Document) -> Document:
    """Return the hyperparameters after a check against the method. Raise CliError before anything is sent."""
    from loragate.cli.settings.names import suggestion
    from loragate.finetune.data.formats import Method
    from loragate.finetune.jobs.hyperparameters import HYPERPARAMETERS
    from loragate.prompts.bodies import InvalidDocument, validate

    kind = HYPERPARAMETERS[Method(method)]
    try:
        validate(kind, given)
    except InvalidDocument as error:
        field = error.field
        if field.unknown and field.param is not None:
            known = list(kind.model_fields)
            hint = suggestion(field.param, known) or f"; the known ones are {', '.join(known)}"
            raise CliError(f"--set {field.param}: {method} has no such hyperparameter{hint}", BAD_SETTING) from None
        raise CliError(f"--set {field.param}: {field.message}", BAD_SETTING) from None
    return given


def parse_metadata(given: Sequence[str]) -> dict[str, str]:
    """Parse `name=text` texts. Raise CliError."""
    pairs = [text.partition("=") for text in given]
    for text, (name, equals, _) in zip(given, pairs, strict=True):
        if not name or not equals:
            raise CliError(f"{text!r} is not NAME=TEXT, such as team=support", BAD_SETTING)
    return {name: text for name, _, text in pairs}
