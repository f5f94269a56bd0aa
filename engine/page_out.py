"""Lets memory go that can be read again from its file."""

import ctypes
import mmap
import sys

from torch import Tensor

_MADV_PAGEOUT = 21  # Linux 5.4; leaves pages alone that have no file behind them


def page_out(tensor: Tensor) -> None:
    """Give back the memory of a tensor that is mapped from a checkpoint; it is read again if it is ever touched.

    Where that is not possible nothing happens.
    """
    if sys.platform != "linux" or tensor.device.type != "cpu":
        return
    start = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (tensor.data_ptr() + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop > start:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _MADV_PAGEOUT)
