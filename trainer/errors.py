"""Errors of training that the caller can correct."""


class TrainingRejected(Exception):
    """This request cannot be computed; the message names the field and says why."""
