"""A fake engine: ready when the file at its address exists. Arguments: parent, socket path, exit status."""

import os
import signal
import sys
from pathlib import Path

from loragate.cli.parent_death import exit_when_parent_dies

exit_when_parent_dies(int(sys.argv[1]))
if status := int(sys.argv[3]):
    sys.exit(status)


def stop(*_: object) -> None:
    with Path("events").open("a") as events:
        events.write("engine stops\n")
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
Path(sys.argv[2]).write_text(str(os.getpid()))
while True:
    signal.pause()
