"""Serves the diagrams' library from the site: the theme would load it from another host."""

from pathlib import Path
from typing import Any

import nicegui
from mkdocs.structure.files import File, Files

DIST = Path(nicegui.__file__).parent / "elements" / "mermaid" / "dist"
START = 'import { mermaid } from "./index.js";\nwindow.mermaid = mermaid;\n'


def on_files(files: Files, *, config: Any) -> Files:
    """Add the library, which the panel's framework brings."""
    for source in sorted(DIST.glob("*.js")):
        files.append(File.generated(config, f"assets/mermaid/{source.name}", abs_src_path=str(source)))
    files.append(File.generated(config, "assets/mermaid/start.js", content=START))
    return files
