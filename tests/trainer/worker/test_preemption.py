"""Preemption of a step by short commands: it pauses between layers, and for no longer than it computes."""

import threading
import time

from loragate.trainer.worker.preemption import Preemption


def test_a_step_pauses_until_the_command_has_ended() -> None:
    preemption, paused, resumed = Preemption(), threading.Event(), threading.Event()

    def step() -> None:
        preemption.begin_step()
        time.sleep(0.5)
        paused.set()
        preemption.pause()
        resumed.set()

    thread = threading.Thread(target=step)
    with preemption.running():
        thread.start()
        paused.wait()
        assert not resumed.wait(0.1)
    thread.join()
    assert resumed.is_set()


def test_commands_without_end_do_not_stop_a_step() -> None:
    preemption = Preemption()
    with preemption.running():
        preemption.begin_step()
        began = time.monotonic()
        for _ in range(1000):
            preemption.pause()  # it has computed nothing: only its grace is used up
        assert time.monotonic() - began < 30
    began = time.monotonic()
    preemption.pause()
    assert time.monotonic() - began < 30
