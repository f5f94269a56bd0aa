"""The page of one fine-tuning job: progress, loss, events and checkpoints, updated live."""

import asyncio
from urllib.parse import quote

from loragate.panel.api import Json, path
from loragate.panel.pages.jobs.evaluation import show_evaluation
from loragate.panel.pages.jobs.list import ENDED, progress_words
from loragate.panel.pages.page import PageContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.display import chart, formats
from loragate.panel.parts.display.chip import state_chip
from loragate.panel.parts.display.table import Column, table
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, link, muted, tag
from loragate.panel.parts.frame import heading
from loragate.panel.parts.keyed_redraw import keyed_redraw
from loragate.panel.parts.notify import run_and_notify
from loragate.panel.tenant_names import TenantNames

_MAX_EVENTS = 2000
_SHOWN_EVENTS = 60


def draw(context: PageContext) -> None:
    """Draw the page, which is updated every few seconds."""
    _Job(context).draw()


class _Job:
    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._id = context.names["job"]
        self._is_operator = context.caller.is_operator
        self._tenants = TenantNames(context.api)
        self._events: dict[str, Json] = {}
        self._region: AsyncRegion[tuple[Json, list[Json], int]]

    def _at(self, *parts: str) -> str:
        place = ("admin", "v1", "jobs") if self._is_operator else ("v1", "fine_tuning", "jobs")
        return path(*place, self._id, *parts)

    def draw(self) -> None:
        self._head = div("head")
        with self._head:
            heading(self._id, back=("Fine-tuning", "/fine-tuning"))
        self._region = AsyncRegion(self._fetch, self._show, every=3)

    async def _fetch(self) -> tuple[Json, list[Json], int]:
        job, checkpoints, _ = await asyncio.gather(
            self._context.api.get(self._at()),
            self._context.api.get(self._at("checkpoints"), limit=50),
            self._fetch_events(),
        )
        if self._is_operator:
            await self._tenants.fetch([job["tenant_id"]])
        return job, checkpoints["data"], len(self._events)

    async def _fetch_events(self) -> None:
        """Fetch the events that are not known yet."""
        after: str | None = None
        while len(self._events) < _MAX_EVENTS:
            page = await self._context.api.get(self._at("events"), after=after, limit=100)
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
        self._progress(job)
        self._plots(sorted((e["data"] for e in events if e["type"] == "metrics"), key=lambda data: data["step"]))
        show_evaluation(job["evaluation"])
        self._checkpoints(job, checkpoints)
        with tag("section", classes="stack"):
            tag("h2", "Events")
            self._messages([event for event in events if event["type"] == "message"])

    def _show_head(self, job: Json) -> None:
        with keyed_redraw(self._head):
            words = f"A job of the tenant {self._tenants.name(job['tenant_id'])}." if self._is_operator else ""
            heading(job["fine_tuned_model"] or self._id, words, back=("Fine-tuning", "/fine-tuning"))
            with div("actions"):
                if job["fine_tuned_model"] and job["status"] == "succeeded" and self._context.caller.may("inference"):
                    link("Open in the playground", _playground(job, job["fine_tuned_model"]), "button primary")
                if job["status"] == "paused":
                    button("Resume", lambda: self._act("resume", "The job continues."), "primary")
                elif job["status"] not in ENDED:
                    button("Pause", lambda: self._act("pause", "The job pauses after the current step."))
                if job["status"] not in ENDED:
                    button("Cancel", lambda: self._act("cancel", "The job is being cancelled."), "danger")

    def _progress(self, job: Json) -> None:
        done = job["progress"]
        share = done["step"] / max(1, done["total_steps"]) if done and done["total_steps"] else 0.0
        with div("card"), div("stack"):
            with div("row-of apart"):
                with div("row-of"):
                    state_chip(job["status"])
                    tag("span", f"starts from {job['model']}", classes="muted break")
                tag("span", f"{progress_words(job)} steps" if done else "not started", classes="number")
            with div("meter", role="img", aria_label=f"{share:.0%} done"):
                div().style(f"width: {share:.1%}")
            if job["estimated_finish"] and job["status"] == "running":
                muted(f"Estimated finish: {formats.moment(formats.unix(job['estimated_finish']))}.", "small")

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
                    muted("By step. The second colour is the validation loss." if valid else "By step.", "small")
            if rates:
                with div("card"), div("stack"):
                    tag("h2", "Learning rate")
                    chart.curve("Learning rate by step, in thousandths", rates)
                    muted("By step, in thousandths.", "small")

    def _checkpoints(self, job: Json, checkpoints: list[Json]) -> None:
        if not checkpoints:
            return
        columns = [
            Column[Json]("Step", lambda row: f"Step {row['step_number']}"),
            Column[Json]("Loss", lambda row: _figure(row["metrics"], "train_loss"), "number"),
            Column[Json]("Validation loss", lambda row: _figure(row["metrics"], "valid_loss"), "number"),
        ]
        if self._context.caller.may("inference"):
            columns.append(Column[Json]("", lambda row: _try_it(job, row), "end"))
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
                tag("li", "No events yet.", classes="muted")

    async def _act(self, act: str, words: str) -> None:
        if await run_and_notify(self._context.api.post(self._at(act)), words):
            await self._region.load()


def _curve(steps: list[Json], figure: str) -> list[tuple[float, float]]:
    return [(step["step"], float(step[figure])) for step in steps if step.get(figure) is not None]


def _playground(job: Json, model: str) -> str:
    """Return the page on which the job's models are tried."""
    page = "classify" if job["method"]["type"] == "classify" else "playground"
    return f"/{page}?model={quote(model, safe='')}"


def _try_it(job: Json, row: Json) -> None:
    name = row["fine_tuned_model_checkpoint"]
    with div("row-of"):
        if name:
            link("Open in the playground", _playground(job, name), "button small")


def _figure(metrics: Json, name: str) -> str:
    value = metrics.get(name)
    return "–" if value is None else f"{value:.3f}"
