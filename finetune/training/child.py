"""A run in a process of its own: what kills it, a lack of memory or a driver's fault, kills no one else.

    python -m loragate.finetune.training.child

reads an `Assignment` as one line of JSON, then lines `load 0.25` that tell how busy the engine is, and perhaps a line
`stop`; it writes what happens as lines of JSON (see `news`). Without somebody at the other end of its input it stops as
well.
"""

import gc
import logging
import os
import sys
from typing import TextIO


def main() -> None:
    """Ends with 0 whatever became of the run: it has been told."""
    out = _own_output()
    logging.disable(logging.WARNING)  # libraries' warnings, also as they are loaded, are for whoever wrote their calls
    gc.disable()  # nothing that a module is made of is ever garbage: looking for some takes a fifth of the time
    from loragate.finetune.training.session import work

    gc.enable()
    work(sys.stdin, out)


def _own_output() -> TextIO:
    """Standard output, for us alone: what libraries print goes to standard error."""
    own = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return own


if __name__ == "__main__":
    main()
