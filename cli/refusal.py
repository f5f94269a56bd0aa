"""How a command ends early: one sentence on stderr and an exit status, never a traceback."""

FAILED = 1
BAD_SETTING = 2  # also a child's way to say: starting me again cannot help


class Refusal(Exception):
    """The command cannot go on. The message is a sentence for the person who typed it."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
