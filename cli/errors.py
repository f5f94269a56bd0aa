"""The error that ends a command with one sentence on stderr and an exit status instead of a traceback."""

FAILED = 1
BAD_SETTING = 2  # a child exits with it when restarting it cannot help


class CliError(Exception):
    """The command cannot continue. The message is a sentence for its user."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
