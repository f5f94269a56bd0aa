"""One fine-tuning job, live: how far it is, its loss, what happened, what can be asked already."""

import asyncio
from urllib.parse import quote

from loragate.panel.api import Json, path
from loragate.panel.pages.jobs.list import ENDED, progress_words
from loragate.panel.pages.page import Here
from loragate.panel.parts.async_region import Region
from loragate.panel.parts.controls.button import button
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.display.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import redrawn
from loragate.panel.parts.notify import attempt
from loragate.panel.tenant_names import TenantNames

_MOST_EVENTS = 2000
_SHOWN_EVENTS = 60


def draw(here: Here) -> None:
    """Anew every few seconds."""
    _Job(here).draw()


class _Job:
    def __init__(self, here: Here) -> None:
        self._here = here
        self._id = here.names["job"]
        self._of_all = here.caller.is_operator
        self._tenants = TenantNames(here.api)
        self._events: dict[str, Json] = {}
        self._region: Region[tuple[Json, list[Json], int]]

    def _at(self, *parts: str) -> str:
        place = ("admin", "v1", "jobs") if self._of_all else ("v1", "fine_tuning", "jobs")
        return path(*place, self._id, *parts)

    def draw(self) -> None:
        self._head = div("head")
        with self._head:
            heading(self._id, back=("Fine-tuning", "/fine-tuning"))
        self._region = Region(self._fetch, self._show, every=3)

    async def _fetch(self) -> tuple[Json, list[Json], int]:
        job, checkpoints, _ = await asyncio.gather(
            self._here.api.get(self._at()), self._here.api.get(self._at("checkpoints"), limit=50), self._hear()
        )
        if self._of_all:
            await self._tenants.learn([job["tenant_id"]])
        return job, checkpoints["data"], len(self._events)

    async def _hear(self) -> None:
        """What is newer than what we know."""
        after: str | None = None
        while len(self._events) < _MOST_EVENTS:
            page = await self._here.api.get(self._at("events"), after=after, limit=100)
            known = any(event["id"] in self._events for event in page["data"])
            self._events |= {event["id"]: event for event in page["data"]}
            if known or not page["has_more"]:
                return
            after = page["last_id"]

    def _show(self, found: tuple[Json, list[Json], int]) -> None:
        job, checkpoints, _ = found
        events = sorted(self._events.values(), key=lambda event: event["created_at"])
        self._show_head(job)
        if job["error"]:
            with div("notice bad", role="alert"):
                tag("p", job["error"]["message"], classes="grow").style("white-space: pre-wrap")
        self._how_far(job)
        self._plots(sorted((e["data"] for e in events if e["type"] == "metrics"), key=lambda data: data["step"]))
        self._checkpoints(checkpoints)
        with tag("section", classes="stack"):
            tag("h2", "What happened")
            self._messages([event for event in events if event["type"] == "message"])

    def _show_head(self, job: Json) -> None:
        with redrawn(self._head):
            words = f"Of the tenant {self._tenants.name(job['tenant_id'])}." if self._of_all else ""
            heading(job["fine_tuned_model"] or self._id, words, back=("Fine-tuning", "/fine-tuning"))
            with div("actions"):
                if job["fine_tuned_model"] and job["status"] == "succeeded" and self._here.caller.may("inference"):
                    link("Ask it", f"/playground?model={quote(job['fine_tuned_model'], safe='')}", "button primary")
                if job["status"] == "paused":
                    button("Resume", lambda: self._order("resume", "It goes on."), "primary")
                elif job["status"] not in ENDED:
                    button("Pause", lambda: self._order("pause", "It pauses after its step."))
                if job["status"] not in ENDED:
                    button("Cancel", lambda: self._order("cancel", "It is being cancelled."), "danger")

    def _how_far(self, job: Json) -> None:
        done = job["progress"]
        share = done["step"] / max(1, done["total_steps"]) if done and done["total_steps"] else 0.0
        with div("card"), div("stack"):
            with div("row-of apart"):
                with div("row-of"):
                    state_chip(job["status"])
                    tag("span", f"begins with {job['model']}", classes="muted break")
                tag("span", f"{progress_words(job)} steps" if done else "not begun", classes="number")
            with div("meter", role="img", aria_label=f"{share:.0%} done"):
                div().style(f"width: {share:.1%}")
            if job["estimated_finish"] and job["status"] == "running":
                muted(f"Done at about {formats.moment(formats.unix(job['estimated_finish']))}.", "small")

    def _plots(self, steps: list[Json]) -> None:
        if not steps:
            return
        loss, valid = _curve(steps, "train_loss"), _curve(steps, "valid_loss")
        rates = [(step, rate * 1000) for step, rate in _curve(steps, "learning_rate")]
        with div("grid-2"):
            if loss:
                with div("card"), div("stack"):
                    tag("h2", f"Loss: {loss[-1][1]:.3f}")
                    chart.curve("Loss by step", loss, valid)
                    muted("By step; of the validation file in the second colour." if valid else "By step.", "small")
            if rates:
                with div("card"), div("stack"):
                    tag("h2", "Learning rate")
                    chart.curve("Learning rate by step, in thousandths", rates)
                    muted("By step, in thousandths.", "small")

    def _checkpoints(self, checkpoints: list[Json]) -> None:
        if not checkpoints:
            return
        columns = [
            Column[Json]("Step", lambda row: f"Step {row['step_number']}"),
            Column[Json]("Loss", lambda row: _figure(row["metrics"], "train_loss"), "number"),
            Column[Json]("Validation loss", lambda row: _figure(row["metrics"], "valid_loss"), "number"),
        ]
        if self._here.caller.may("inference"):
            columns.append(Column[Json]("", _try_it, "end"))
        with tag("section", classes="stack"):
            tag("h2", "Checkpoints")
            with div("card flush"):
                table("Checkpoints", columns, checkpoints)

    def _messages(self, messages: list[Json]) -> None:
        with div("card"), tag("ul", classes="events", tabindex="0"):
            for event in list(reversed(messages))[:_SHOWN_EVENTS]:
                with tag("li"):
                    tag("span", formats.moment(formats.unix(event["created_at"])), classes="muted small nowrap")
                    tag("span", event["message"])
            if not messages:
                tag("li", "Nothing yet.", classes="muted")

    async def _order(self, order: str, words: str) -> None:
        if await attempt(self._here.api.post(self._at(order)), words):
            await self._region.load()


def _curve(steps: list[Json], figure: str) -> list[tuple[float, float]]:
    return [(step["step"], float(step[figure])) for step in steps if step.get(figure) is not None]


def _try_it(row: Json) -> None:
    name = row["fine_tuned_model_checkpoint"]
    with div("row-of"):
        if name:
            link("Ask it", f"/playground?model={quote(name, safe='')}", "button small")


def _figure(metrics: Json, name: str) -> str:
    value = metrics.get(name)
    return "–" if value is None else f"{value:.3f}"
