"""Advice to the operating system about the pages of a tensor in main memory; a no-op where it is not supported."""

import ctypes
import mmap
import sys

from torch import Tensor

_HUGE = 2 << 20  # bytes, on x86 and on ARM with small pages of 4 KiB
_MADV_HUGEPAGE = 14
_MADV_PAGEOUT = 21  # Linux 5.4; ignores pages without a file behind them


def page_out(tensor: Tensor) -> None:
    """Release the memory of a tensor that is mapped from a checkpoint; a later access reads it again."""
    _advise(tensor, mmap.PAGESIZE, _MADV_PAGEOUT)


def prefer_huge_pages(tensor: Tensor) -> None:
    """Ask for huge pages for a tensor that will be filled and then read repeatedly from end to end.

    Processors prefetch only within a page, which costs up to 15 % of the time. This takes no additional memory: the
    ends that do not fill a huge page keep small ones.
    """
    _advise(tensor, _HUGE, _MADV_HUGEPAGE)


def _advise(tensor: Tensor, page: int, advice: int) -> None:
    """Advise about the whole pages that the tensor fills."""
    if sys.platform != "linux" or tensor.device.type != "cpu":
        return
    start = -(-tensor.data_ptr() // page) * page
    stop = (tensor.data_ptr() + tensor.nbytes) // page * page
    if stop > start:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), advice)
