"""In the trainer's place: a process that hangs, or is slow, after its first message.

python hanging_trainer.py HOW     holding: in C, holding the interpreter, as a regex does;
                                  deaf: it runs and does not stop; slow: it computes for a second and then finishes
"""

import re
import sys
import threading
import time

from loragate.finetune.training.protocol.message_writer import MessageWriter
from loragate.finetune.training.protocol.messages import Finished, Waiting

writer = MessageWriter(sys.stdout)
writer.start_heartbeat(0.05)
sys.stdin.readline()
writer.send(Waiting(0))
match sys.argv[1]:
    case "holding":
        re.fullmatch("(.*)*x", "a" * 80)
    case "deaf":
        threading.Event().wait()
    case "slow":
        time.sleep(1.0)
        writer.send(Finished(1, "adapter"))
