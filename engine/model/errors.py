"""Errors of base models that cannot be served."""


class ModelRejected(Exception):
    """This base model cannot be served; the message says why and what to do."""
