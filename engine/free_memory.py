"""What memory is left, in bytes."""

import os

import torch


def free_host_memory() -> int:
    """Pages that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def free_device_memory(device: torch.device) -> int:
    """Of a GPU, its own; a CPU's is the host's."""
    return free_host_memory() if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]
