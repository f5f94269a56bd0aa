"""Python's garbage collector, which stops every thread while it looks at what it knows."""

import atexit
import gc


def keep_for_good() -> None:
    """What is there now is never looked at again.

    torch, transformers and a model are half a million objects, a gateway's libraries nearly as many; a full collection
    takes 0.3 s, in which nobody gets a token, and comes at some moment of serving.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # or libraries complain of leaks when the process ends
