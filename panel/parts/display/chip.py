"""Chips: states as a word in a colour."""

from nicegui.elements.mixins.text_element import TextElement

from loragate.panel.parts.elements.tag import tag

_COLOURS = {
    "ready": "good",
    "active": "good",
    "succeeded": "good",
    "ok": "good",
    "device": "accent",
    "host": "info",
    "disk": "",
    "completed": "good",
    "verifying": "info",
    "validating": "info",
    "in_progress": "info",
    "finalizing": "info",
    "cancelling": "warn",
    "running": "info",
    "queued": "info",
    "validating_files": "info",
    "paused": "warn",
    "disabled": "warn",
    "degraded": "warn",
    "expiring": "warn",
    "unreachable": "bad",
    "quarantined": "bad",
    "rejected": "bad",
    "failed": "bad",
    "deleted": "bad",
    "revoked": "bad",
    "expired": "bad",
}
_WORDS = {"device": "on the device", "host": "in memory", "disk": "on disk", "none": "in storage"}


def state_chip(state: str) -> TextElement:
    """Draw the state of an adapter, key or job, or an adapter's residency."""
    return chip(_WORDS.get(state, state.replace("_", " ")), f"{_COLOURS.get(state, '')} nowrap")


def chip(text: str, colour: str = "") -> TextElement:
    """Draw a chip. `colour`: good, warn, bad, info, accent, or "" for a neutral one."""
    return tag("span", text, classes=f"chip {colour}".strip())
