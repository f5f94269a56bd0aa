"""Why an import ended: one exception, with the code and the sentence that its owner is told."""

from loragate.adapter_store.failure import Failure


class ImportFailed(Exception):
    """Never holds a URL's path or query: those of redirects are secrets."""

    def __init__(self, code: str, message: str, param: str | None = "source") -> None:
        super().__init__(message)
        self.failure = Failure(code, message, param)
