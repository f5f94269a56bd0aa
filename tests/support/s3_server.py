"""A private S3: moto's server in its own process, which implements the real protocol."""

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from unittest.mock import patch

from skip_for_missing import skip_for_missing

BUCKET = "loragate"
# Ends with the process that started it, however that ends, because its standard input ends then.
_SERVE = """
import os, sys, threading
from moto.server import main
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
main()
"""
_ADDRESS = re.compile(r"Running on (http://[\d.:]+)")


class S3Server:
    """An S3 server with one bucket in memory. `environment` has the AWS variables that select it."""

    def __init__(self) -> None:
        if find_spec("moto") is None or find_spec("s3fs") is None:
            skip_for_missing("moto and s3fs")
        command = [sys.executable, "-c", _SERVE, "-H", "127.0.0.1", "-p", "0"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.endpoint = self._listening()
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def new_url(self) -> str:
        """Return the URL of an empty prefix in the bucket."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"

    def pause(self) -> None:
        """Suspend the process: connections stay open, but no responses come."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listening(self) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = _ADDRESS.search(line)
            if found:
                threading.Thread(target=self._drain, daemon=True).start()
                return found[1]
        raise AssertionError(f"moto ended with status {self._process.wait()}")

    def _drain(self) -> None:
        """Read and discard the log, because a full pipe would block the server."""
        assert self._process.stderr is not None
        with self._process.stderr as log:
            for _ in log:
                pass


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Yield this process's shared server with its bucket.

    It is shared because s3fs caches file systems by their options, not by the environment, so that a second server
    would not be used.
    """
    server = _shared()
    with patch.dict(os.environ, server.environment):
        yield server


@contextmanager
def another_s3_server() -> Iterator[S3Server]:
    """Yield a new server that a test may stop. The test must clear the cached file systems of other servers."""
    server = _with_bucket()
    try:
        with patch.dict(os.environ, server.environment):
            yield server
    finally:
        server.close()


@cache
def _shared() -> S3Server:
    return _with_bucket()


def _with_bucket() -> S3Server:
    from s3fs import S3FileSystem

    server = S3Server()
    with patch.dict(os.environ, server.environment):
        S3FileSystem(use_listings_cache=False, skip_instance_cache=True).call_s3("create_bucket", Bucket=BUCKET)
    return server
