"""Has each process of the soak test write the number of its asyncio tasks to $SOAK_TASKS/<pid>, twice a second."""

import os
import threading
import time
from pathlib import Path

_FOLDER = os.environ.get("SOAK_TASKS")


def _count() -> int:
    """Return the number of unfinished tasks of all loops; -1 while the set changes."""
    from asyncio import tasks

    try:
        return sum(not task.done() for task in list(tasks._all_tasks))  # type: ignore[attr-defined]
    except RuntimeError:
        return -1


def _run(file: Path) -> None:
    draft = file.with_suffix(".draft")
    while True:
        count = _count()
        if count >= 0:
            draft.write_text(str(count))
            draft.replace(file)
        time.sleep(0.5)


if _FOLDER:
    threading.Thread(target=_run, args=(Path(_FOLDER, str(os.getpid())),), daemon=True).start()
