"""Orders to stop: the first one lets requests finish, a second one does not."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SAME_ORDER_SECONDS = 0.3


class StopOrders:
    """`requested` after the first order, `at_once` after the second."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()
        self._first: float | None = None

    def order(self) -> None:
        """Counts an order. One signal to a whole process group may reach us twice, from its sender and from make."""
        now = asyncio.get_running_loop().time()
        if self._first is None:
            self._first = now
            self.requested.set()
        elif now - self._first > _SAME_ORDER_SECONDS:
            self.at_once.set()


@contextmanager
def stop_orders() -> Iterator[StopOrders]:
    """Listens to SIGTERM, SIGINT and the terminal's hanging up, unless nohup told us to ignore that.

    Afterwards all are ignored: the process is about to end, and its status should say how the stop went.
    """
    orders = StopOrders()
    loop = asyncio.get_running_loop()
    heard = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    for number in heard:
        loop.add_signal_handler(number, orders.order)
    try:
        yield orders
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
