"""How a base model is turned away."""


class ModelRefused(Exception):
    """This base model cannot be served; the message says why and what to do."""
