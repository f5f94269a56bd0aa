"""How the parts' log lines look when they run under our commands."""

import logging


def log_to_stderr() -> None:
    """One line an event, with its time and level; libraries speak up from warnings on."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("loragate").setLevel(logging.INFO)
