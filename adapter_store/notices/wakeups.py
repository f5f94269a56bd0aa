"""Wake-ups between the processes of one machine: a datagram to a Unix socket says that there is something to read.

They carry nothing, and may be lost: every receiver also looks now and then without one. Where processes run on several
machines, that is all there is.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

GATEWAY, TRAINER = "gateway", "trainer"
"""The names under which the processes receive wake-ups."""

_SUFFIX = ".wakeup"


class Wakeups:
    """The sockets of one folder. A process receives the wake-ups for its `name`, of which several processes may have
    one each; all of them are woken."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._path = folder / f"{name}-{os.getpid()}{_SUFFIX}"
        self._socket: socket.socket | None = None
        self._arrived = asyncio.Event()

    def open(self) -> None:
        """Begin to receive."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.unlink(missing_ok=True)
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        receiver.setblocking(False)
        try:
            with _address(self._path) as address:
                receiver.bind(address)
        except OSError:  # the folder cannot be written, or the path is too long for this system
            receiver.close()
            return
        self._socket = receiver
        asyncio.get_running_loop().add_reader(receiver, self._receive)

    def close(self) -> None:
        """Receive nothing more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)

    def wake(self, name: str) -> None:
        """Wake the processes of this name. Never blocks or raises."""
        if self._socket is None:
            return
        for path in self._folder.glob(f"{name}-*{_SUFFIX}"):
            try:
                with _address(path) as address:
                    self._socket.sendto(b"\0", address)
            except ConnectionRefusedError:  # its process died
                path.unlink(missing_ok=True)
            except OSError:  # its queue is full, or it has just closed
                continue

    async def wait(self, seconds: float) -> None:
        """Return at the next wake-up, also one since the last call, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        self._arrived.clear()

    def arrive(self) -> None:
        """Make `wait` return, as a wake-up of another process does."""
        self._arrived.set()

    def _receive(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(1):
                self._arrived.set()


@contextlib.contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield the path, or on Linux a short name for it: a socket's address holds 107 bytes."""
    links = Path("/proc/self/fd")
    if not links.is_dir():
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{links}/{folder}/{path.name}"
    finally:
        os.close(folder)
