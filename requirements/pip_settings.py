"""Where pip is configured to find packages, in uv's terms: uv reads neither pip's variables nor its files."""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping

_SECTIONS = ("global", "install", ":env:")  # later ones win
_SEVERAL = {
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
_ONE = {
    "index-url": "UV_DEFAULT_INDEX",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
_OLD_NAMES = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
_PLACES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")


def read_pip_settings() -> dict[str, str]:
    """Return what pip's files and variables set for `pip install`, by the names of its options."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    return parse_settings(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parse_settings(listed: str) -> dict[str, str]:
    """Return the settings in the output of `pip config list`; variables win over files, and sections over `global`."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in found:
            found[section][name] = ast.literal_eval(value)
    return {name: value for section in _SECTIONS for name, value in found[section].items()}


def uv_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which uv takes packages from where pip would. Those of the environment win."""
    found = {}
    for name, (variable, separator) in _SEVERAL.items():
        if words := settings.get(name, "").split():
            found[variable] = separator.join(map(os.path.expanduser, words))
    for name, variable in _ONE.items():
        if value := settings.get(name):
            found[variable] = os.path.expanduser(value)
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        found["UV_NO_INDEX"] = "1"
    # pip takes the best version of all indexes; uv would look only into the first that has the package.
    found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return {
        name: value
        for name, value in found.items()
        if not environment.get(name) and not environment.get(_OLD_NAMES.get(name, ""))
    }


def names_a_place(variables: Mapping[str, str]) -> bool:
    """Return whether uv's variables name an index or a folder of packages."""
    return any(variables.get(name) for name in _PLACES)
