"""Errors of base models that cannot be served."""

EXIT_REJECTED = 2  # of the engine's process: a restart would not help


class ModelRejected(Exception):
    """This base model cannot be served; the message says why and what to do."""
