"""Records the demo in a terminal and writes demo.svg beside this file: `.venv/bin/python docs/pictures/cast.py`.

The picture plays once what the program printed, without its log and its keys, with the pauses that it made, but none
over two seconds. Where pictures do not move, it shows the end.
"""

import os
import pty
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

OUT = Path(__file__).with_name("demo.svg")
COMMANDS = (
    "loragate demo",
    'loragate chat --model pirate "What is 2 plus 3?"',
    'loragate chat --model json "What is the capital of Italy?"',
)
LEFT_OUT = re.compile(r"lg-|^Try it|^\d{4}-|^loragate: |^  (curl|data|panel|gRPC) |^$")
READY = "Ctrl-C stops the server"
COLUMNS = 96
LONGEST_PAUSE = 2.0
TYPING = 0.8
WIDTH, LINE, MARGIN = 900, 19, 24

STYLE = """
text { font: 14.6px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre; }
.typed { fill: #82aaff; font-weight: bold; }
.line { animation: appear 1ms backwards; }
@keyframes appear { from { opacity: 0 } }
"""

Line = tuple[float, str]
"""Seconds since the command started, and what it printed."""


def run(command: str, folder: Path) -> tuple[subprocess.Popen[bytes], Iterator[Line]]:
    """Start a command in a terminal of its own; return it and its lines as they come."""
    terminal, inner = pty.openpty()
    environment = os.environ | {
        "COLUMNS": "200",
        "TERM": "dumb",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    process = subprocess.Popen(shlex.split(command), cwd=folder, env=environment, stdout=inner, stderr=inner)
    os.close(inner)
    return process, _lines(terminal)


def _lines(terminal: int) -> Iterator[Line]:
    begun = time.monotonic()
    with open(terminal, encoding="utf-8") as opened:
        try:
            for line in opened:
                yield time.monotonic() - begun, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line).rstrip()
        except OSError:  # the command has ended
            return


def record(folder: Path) -> list[tuple[str, list[Line]]]:
    """Run the commands, the first one beside the others; return each with its lines."""
    server, lines = run(COMMANDS[0], folder)
    try:
        begun = []
        for line in lines:
            begun.append(line)
            if READY in line[1]:
                break
        recorded = [(COMMANDS[0], begun), *((command, list(run(command, folder)[1])) for command in COMMANDS[1:])]
        return [(command, list(_shown(lines, folder))) for command, lines in recorded]
    finally:
        server.terminate()
        server.wait(60)


def _shown(lines: list[Line], folder: Path) -> Iterator[Line]:
    for at, line in lines:
        if not LEFT_OUT.search(line):
            yield at, line.replace(f"{folder}/", "")[:COLUMNS]


def draw(recorded: list[tuple[str, list[Line]]]) -> str:
    """Return the picture."""
    texts: list[str] = []
    clock = 0.5
    for command, lines in recorded:
        texts.append(_text(f"$ {command}", len(texts), clock, "line typed"))
        clock, last = clock + TYPING, 0.0
        for at, line in lines:
            clock, last = clock + min(at - last, LONGEST_PAUSE), at
            texts.append(_text(line, len(texts), clock, "line"))
        clock += TYPING
    height = 2 * MARGIN + LINE * len(texts)
    frame = f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#011627"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    title = "<title>A terminal: loragate demo, and what its adapters answer</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", frame, *texts, "</svg>"]) + "\n"


def _text(line: str, row: int, at: float, kind: str) -> str:
    y = MARGIN + LINE * (row + 0.8)
    return f'<text class="{kind}" x="{MARGIN}" y="{y:.0f}" style="animation-delay:{at:.2f}s">{escape(line)}</text>'


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        OUT.write_text(draw(record(Path(folder))), encoding="utf-8")
    print(OUT)
