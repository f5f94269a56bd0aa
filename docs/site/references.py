"""Adds the reference pages, which are made from the program: REST, gRPC, the commands and the settings."""

from typing import Any

import reference_commands
import reference_grpc
import reference_rest
import reference_settings
from mkdocs.structure.files import File, Files

PAGES = {
    "reference/rest.md": reference_rest.page,
    "reference/grpc.md": reference_grpc.page,
    "reference/commands.md": reference_commands.page,
    "reference/settings.md": reference_settings.page,
}


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    return files
