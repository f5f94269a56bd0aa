"""Compilation of all CPU loops ahead of the first request."""

from loragate.kernels.cpu.decode_attention import attend
from loragate.kernels.cpu.low_rank import add_rows
from loragate.kernels.cpu.rms_norm import norm_rows
from loragate.kernels.cpu.team import note_ids


def compile_loops() -> None:
    """Compile all loops now, because the first compilation on a machine takes seconds."""
    for loop in (attend, add_rows, norm_rows, note_ids):
        loop.compile()
