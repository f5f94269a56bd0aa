"""The README's commands, and its programs, run unchanged except for the server's address."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
_SHOWN_AT, _SHOWN_BASE = "http://127.0.0.1:8000", "loragate-demo"


def console_blocks() -> list[list[str]]:
    """Return the command lines of each block that shows some."""
    shown = re.findall(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    return [[line[2:] for line in block.splitlines() if line.startswith("$ ")] for block in shown]


def printed_by(example: str, base_url: str, base: str, **defined: str) -> str:
    """Run the README's only Python program that contains `example` and return its output.

    The server has the base model `base`; `defined` has the variables that the program does not define itself.
    """
    (program,) = [each for each in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if example in each]
    for shown, real in ((_SHOWN_AT, base_url), (_SHOWN_BASE, base)):
        assert shown in program
        program = program.replace(shown, real)
    names = "".join(f"{name} = {value!r}\n" for name, value in defined.items())
    done = subprocess.run([sys.executable, "-c", names + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
