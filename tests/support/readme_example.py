"""The README's blocks, and a checkout for a reader who follows them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from page_reader import Reader
from running_server import clean_environment
from snippets import ROOT, Block, blocks

FINE_TUNES = "fine_tuning.jobs.create"
OWN_SERVER = "mkdir ../my-server"
DOWNLOAD = "hf download"


def readme(beginning: str = "", end: str = "") -> list[Block]:
    """Return the blocks from the one that contains `beginning` to before the one that contains `end`."""
    shown = [block for block in blocks("console", "python", "text") if block.page == "README.md"]
    first = position(shown, beginning) if beginning else 0
    return shown[first : position(shown, end) if end else None]


def position(shown: list[Block], text: str) -> int:
    """Return where the only block with this text is."""
    (found,) = [number for number, block in enumerate(shown) if text in block.text]
    return found


def make_checkout(folder: Path) -> Path:
    """Make a folder for the README's commands: with the demo's files, and an environment that has what `make serve`
    installs. `make` only prints what it would run there."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    (folder / "demo").symlink_to(ROOT / "demo")
    (programs / "activate").write_text(f"PATH={programs}:$PATH\n")
    for name, command in {
        "loragate": f"{sys.executable} -m loragate.cli.main",
        "hf": str(Path(sys.executable).with_name("hf")),
        "make": f"{shutil.which('make')} -C {ROOT} --dry-run",
    }.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    return folder


def terminal(checkout: Path) -> dict[str, str]:
    """Return the variables of a new terminal, which finds `make`, but not what is installed."""
    (checkout / "make").symlink_to(checkout / ".venv" / "bin" / "make")
    return clean_environment() | {"PATH": f"{checkout}:{os.environ['PATH']}"}


def follow(reader: Reader, shown: list[Block]) -> None:
    """Do what the blocks show. What stands as text below a program is all that it prints."""
    printed = ""
    for block in shown:
        if block.language == "text":
            assert printed == block.text
        else:
            printed = reader.run(block)


def printed_by(example: str, base_url: str, base: str, **environment: str) -> str:
    """Run the README's only program that contains `example`, for the base model `base`, and return its output."""
    (program,) = (block.text for block in readme() if block.language == "python" and example in block.text)
    for shown, real in (("http://127.0.0.1:8000", base_url), ("loragate-demo", base)):
        assert shown in program
        program = program.replace(shown, real)
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
