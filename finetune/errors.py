"""How a job ends that cannot be trained."""

from loragate.adapter_store.errors import Failure


class JobRejected(Exception):
    """`failure` is for its tenant."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def storage_failure(error: OSError) -> Failure:
    """This machine's disk does not take what the job needs."""
    return Failure("insufficient_storage", f"The training's files cannot be written: {error.strerror or error}.")
