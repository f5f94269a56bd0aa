"""Errors that end a job."""

from loragate.adapter_store.errors import Failure


class JobRejected(Exception):
    """The job cannot be trained. `failure` is shown to its tenant."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def storage_failure(error: OSError) -> Failure:
    """Return the failure of a job whose files cannot be written on this machine."""
    return Failure("insufficient_storage", f"The training files cannot be written: {error.strerror or error}.")
