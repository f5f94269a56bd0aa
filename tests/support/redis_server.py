"""A private Redis that tests can stop, start, pause and flush."""

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from skip_for_missing import skip_for_missing


class RedisServer:
    """A Redis server on a Unix socket, without persistence."""

    def __init__(self) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            skip_for_missing("redis-server")
        self._binary = binary
        self._folder = Path(
            tempfile.mkdtemp(prefix="redis-")
        )  # the paths of pytest's folders are too long for a socket
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self._folder / 'redis.sock'}"

    def start(self) -> None:
        options = ("--port", "0", "--unixsocket", str(self._folder / "redis.sock"), "--save", "", "--appendonly", "no")
        command = [self._binary, *options, "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        retry = Retry(ConstantBackoff(0.05), 200, (RedisConnectionError,))
        with Redis.from_url(self.url, retry=retry) as client:
            client.ping()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def runs(self) -> bool:
        return self._process is not None

    def client(self) -> Redis:
        return Redis.from_url(self.url)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()

    def pause(self) -> None:
        """Suspend the process: connections stay open, but no responses come."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)
