"""What goes wrong between the panel and the API, in the API's own words.

Failure
├── SignedOut        the key is good for nothing any more
└── Unreachable      nobody answers
"""


class Failure(Exception):
    """`message` is for people; `param` is the field at fault."""

    def __init__(self, message: str, status: int = 0, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.param = param


class SignedOut(Failure):
    """The session is over."""


class Unreachable(Failure):
    """The gateway does not answer; it may do so again soon."""
