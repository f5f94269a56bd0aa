"""The trainer's end of its pipe to the worker, and the heartbeat in it."""

import json
import os
import threading
from dataclasses import asdict
from typing import Any, TextIO

from loragate.finetune.training.protocol.messages import Alive, TrainerMessage

HEARTBEAT_SECONDS = 5.0


class MessageWriter:
    """Writes messages as lines of JSON. Several threads may send."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def send(self, message: TrainerMessage) -> None:
        """Send a message. Raise BrokenPipeError if the worker is gone."""
        document: dict[str, Any] = {"kind": type(message).__name__, **asdict(message)}
        with self._lock:
            self._out.write(json.dumps(document) + "\n")
            self._out.flush()

    def start_heartbeat(self, seconds: float = HEARTBEAT_SECONDS) -> None:
        """Send `Alive` every few seconds from a thread, which stands still while another one holds the interpreter:
        the worker notices a process that hangs by its silence."""
        threading.Thread(target=self._beat, args=(seconds,), name="heartbeat", daemon=True).start()

    def _beat(self, seconds: float) -> None:
        pause = threading.Event()
        try:
            while not pause.wait(seconds):
                self.send(Alive())
        except BrokenPipeError:
            os._exit(1)  # the worker is gone; work that was not reported is repeated
