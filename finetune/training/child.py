"""The training process: a run that dies of a lack of memory or a driver's fault takes nothing else with it.

    python -m loragate.finetune.training.child

reads an `Assignment` as one line of JSON, then lines `load 0.25` with the engine's load, and possibly a line `stop`; it
writes messages as lines of JSON (see `protocol.messages`). It also stops when its input ends.
"""

import gc
import logging
import os
import sys
from typing import TextIO

from loragate.engine.runtime.interpreter import without_collection
from loragate.finetune.training.protocol.message_writer import MessageWriter


def main() -> None:
    """Run the assignment. The exit status is always 0: the outcome is sent as a message."""
    out = MessageWriter(_take_stdout())
    out.start_heartbeat()
    logging.disable(logging.WARNING)  # libraries' warnings, also at import, are for the developers of the calling code
    with without_collection():
        from loragate.finetune.training.session import run_assignment
    gc.freeze()  # scanning what the imports created would take more than a second when the process ends
    run_assignment(sys.stdin, out)


def _take_stdout() -> TextIO:
    """Return standard output for our messages; redirect what libraries print to standard error."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


if __name__ == "__main__":
    main()
