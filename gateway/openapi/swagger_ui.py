"""The files of the documentation page. Swagger UI comes with a Python package; nothing is fetched from elsewhere."""

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

_OURS = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}

PAGE = "index.html"
Asset = Literal["favicon.svg", "setup.js", "swagger-ui.css", "swagger-ui-bundle.js"]
ASSETS: tuple[str, ...] = get_args(Asset)

# Swagger UI sets inline styles on its elements.
SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def file_of(name: str) -> tuple[Path, str]:
    """Return the path and the media type of `PAGE` or one of `ASSETS`."""
    ours = _OURS / name
    return (ours if ours.exists() else _swagger_ui() / name), _TYPES[ours.suffix]


def _swagger_ui() -> Path:
    """Return the folder of the package without importing it."""
    spec = find_spec("fastapi_offline")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "static"
