"""All loops there are."""

from loragate.kernels.cpu.decode_attention import attend
from loragate.kernels.cpu.low_rank import add_rows
from loragate.kernels.cpu.rms_norm import norm_rows


def compile_loops() -> None:
    """Now, rather than in front of the first request: it takes seconds when a machine does it for the first time."""
    for loop in (attend, add_rows, norm_rows):
        loop.compile()
