"""The download of a version merged into the base model."""

import shlex
from urllib.parse import quote

from loragate.panel.api import Json
from loragate.panel.pages.adapters.context import AdapterContext
from loragate.panel.parts.async_region import AsyncRegion
from loragate.panel.parts.code_block import code_block
from loragate.panel.parts.dialog import open_dialog
from loragate.panel.parts.display import formats
from loragate.panel.parts.elements.button import button
from loragate.panel.parts.elements.tag import div, muted, tag

_SWITCHED_OFF = "This server does not export merged models. Its operator can allow it: LORAGATE_MERGED_EXPORTS=true"
_CORRUPT = "The files of this version are corrupt"
_CLASSIFIER = "A classifier has a head for labels, which cannot be merged into the base model"


async def fetch_merged_exports(context: AdapterContext) -> bool | None:
    """Return whether the server exports merged models, or None if the key cannot export."""
    if not context.page.caller.may("export"):
        return None
    return bool((await context.api.get("/v1/whoami")).get("merged_exports"))


def draw_merged_export(context: AdapterContext, version: Json, *, switched_on: bool) -> None:
    """Draw the button that opens a version's dialog. Where nothing can be exported, it is disabled and its tooltip says
    why."""
    number = version["version"]
    obstacle = _obstacle(version, switched_on=switched_on)
    action = None if obstacle else lambda: open_merged_export(context, number)
    made = button("Merged model", action, "small quiet", label=f"Merged model of version {number}")
    if obstacle:
        made.props["aria-disabled"] = "true"  # unlike a disabled button it can be focused, and so its tooltip be read
        made.props["title"] = obstacle


def open_merged_export(context: AdapterContext, version: int, failed: int | None = None) -> None:
    """Open the dialog, which checks whether the version can be exported before it offers the download.

    `failed` is the status of a download that has failed just now.
    """

    async def fetch() -> int:
        size: Json = await context.api.get_without_timeout(context.at("versions", version, "merged", "size"))
        return int(size["size_bytes"])

    def show(size: int) -> None:
        if failed is not None:
            with div("notice warn", role="alert"):
                words = (
                    f"The download did not start: the gateway responded with status {failed}. You can try again now."
                )
                tag("p", words, classes="grow")
        with tag("dl", classes="facts"):
            tag("dt", "Size")
            tag("dd", formats.size(size))
            tag("dt", "File")
            with tag("dd"):
                tag("code", f"{folder}.tar", classes="break")
        code_block(command, "Command line")
        with foot:
            url = f"/transfer/merged/{quote(context.name, safe='')}/{version}"
            tag("a", "Download", classes="button primary", href=url).on("click", dialog.close)

    folder = f"{context.name}-{version}-merged"
    named, to = shlex.quote(f"{context.name}:{version}"), shlex.quote(f"./{folder}")
    command = " \\\n  ".join((f"loragate adapters export-merged {named}", to, f"--base-url {context.api.base_url}"))
    with open_dialog(f"Merged model of version {version}") as dialog:
        muted(
            "The base model with this version merged into its weights, as a tar archive. Unpack it into an empty "
            "folder, which transformers loads. A download that is interrupted has to start again."
        )
        AsyncRegion(fetch, show)
        with div("row-of apart") as foot:
            button("Cancel", dialog.close)


def _obstacle(version: Json, *, switched_on: bool) -> str | None:
    if not switched_on:
        return _SWITCHED_OFF
    if version["status"] == "quarantined":
        return _CORRUPT
    return _CLASSIFIER if version["classifier"] else None
