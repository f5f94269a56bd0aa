"""Fine-tuning jobs: a tenant's own, or the operator's view of all."""

from loragate.panel.api import Json, path
from loragate.panel.pages.job_creation import create_sheet
from loragate.panel.pages.page import Here
from loragate.panel.parts import formats
from loragate.panel.parts.button import button
from loragate.panel.parts.chip import state_chip
from loragate.panel.parts.empty import empty
from loragate.panel.parts.frame import heading
from loragate.panel.parts.pager import Cursor, pager
from loragate.panel.parts.region import Region
from loragate.panel.parts.say import attempt
from loragate.panel.parts.table import Column, table
from loragate.panel.parts.tag import div, link, muted

ENDED = ("succeeded", "failed", "cancelled")


def draw(here: Here) -> None:
    """The list."""
    if here.caller.is_operator or here.caller.may("finetune"):
        _Jobs(here).draw()
        return
    with div("head"):
        heading("Fine-tuning")
    with div("card"), empty("o_lock", "Not with this key", "Jobs are for keys with the scope “finetune”."):
        muted("Ask whoever manages your tenant's keys for one.")


class _Jobs:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._all = here.caller.is_operator
        self._at = "/admin/v1/jobs" if self._all else "/v1/fine_tuning/jobs"
        self._cursor = Cursor()
        self._region: Region[Json]

    def draw(self) -> None:
        with div("head"):
            words = "What all tenants train." if self._all else "A file of examples becomes an adapter of your own."
            heading("Fine-tuning", words)
            if not self._all:
                with div("actions"):
                    button("New job", self._make, "primary")
        self._region = Region(self._fetch, self._show, every=5)

    def _make(self) -> None:
        create_sheet(self._here)

    async def _fetch(self) -> Json:
        return await self._here.api.get(self._at, after=self._cursor.after, limit=50)

    def _show(self, page: Json) -> None:
        columns = [
            Column[Json]("Job", self._name, "break"),
            Column[Json]("State", lambda row: state_chip(row["status"])),
            Column[Json]("Begins with", lambda row: str(row["model"]), "break"),
            Column[Json]("Steps", progress_words, "number"),
            Column[Json]("Made", lambda row: formats.ago(formats.unix(row["created_at"])), "nowrap"),
            Column[Json]("", self._acts, "end"),
        ]
        with div("card flush"):
            if page["data"]:
                table("Fine-tuning jobs", columns, page["data"])
                pager(self._cursor, page["last_id"], page["has_more"], self._region.load)
                return
            words = "Ten examples of questions and good answers are enough to begin with, one a line, as JSON."
            with empty("o_school", "No jobs yet", "No tenant trains anything." if self._all else words):
                if not self._all:
                    button("Make the first one", self._make, "primary")

    def _name(self, row: Json) -> str | None:
        if self._all:
            return str(row["id"])
        link(row["id"], path("fine-tuning", row["id"]))
        return None

    def _acts(self, row: Json) -> None:
        with div("row-of"):
            if self._all and row["status"] not in ENDED:
                button("Cancel", lambda: self._cancel(row["id"]), "small danger", label=f"Cancel {row['id']}")

    async def _cancel(self, job: str) -> None:
        if await attempt(self._here.api.post(path("admin", "v1", "jobs", job, "cancel")), "It is being cancelled."):
            await self._region.load()


def progress_words(job: Json) -> str:
    """Steps of steps."""
    done = job["progress"]
    return "–" if done is None else f"{done['step']} of {done['total_steps']}"
