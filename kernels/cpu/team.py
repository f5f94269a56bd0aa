"""The threads of a team, as the operating system knows them."""

from typing import Any

import numpy as np
import torch
from numba import carray, types

from loragate.kernels.cpu.parallel import ParallelLoop, int64_array, ints_at, thread

_gettid = types.ExternalFunction("gettid", types.int32())


def team_ids() -> list[int]:
    """Return the native ids of the threads that compute for the calling thread, itself included. On Linux."""
    ids = np.zeros(torch.get_num_threads(), dtype=np.int64)
    note_ids(int64_array(ids.ctypes.data, len(ids)))
    return [int(each) for each in ids if each]


@ParallelLoop
def note_ids(pointer: Any) -> None:
    at, count = carray(pointer, 2)
    ids = carray(ints_at(at), count)
    ids[thread()] = _gettid()
