"""Roofline chart of the kernels: `docs/pictures/rooflines.svg`.

    python -m benchmarks.gpu.roofline

Points come from `results/gpu_time.json`, under the roofs measured in the same run. Without that file, there are no
measurements: points are then hollow and show the upper bound of each compiled launch, from its bytes and operations
under the vendor's roofs, and the title says "Not measured yet". A copy has no operations and does not appear.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.lib.svg import Launches, Roof, rooflines
from loragate.kernels.compile import KERNELS

_ROOT = Path(__file__).parents[2]
_RESULT = _ROOT / "benchmarks" / "results" / "gpu_time.json"
_PICTURE = _ROOT / "docs" / "pictures" / "rooflines.svg"

# NVIDIA, "H100 Tensor Core GPU" and "H200 Tensor Core GPU" data sheets: SXM, bfloat16 without sparsity.
VENDOR_ROOFS = (Roof("H100", 3.35e12, 989e12), Roof("H200", 4.8e12, 989e12))
NAMES = {
    "segmented_lora": "segmented-gather matmul",
    "grouped_experts": "grouped experts",
    "kv_write": "KV write",
    "decode_attention": "decode attention",
    "prefill_attention": "prefill attention",
    "rms_norm": "RMSNorm",
    "rotary": "rotary",
    "gated": "gated activation",
}
FIGURES = {
    "segmented_lora": ("lora_of_a_decode_step", "lora_of_a_prefill", "lora_launches"),
    "grouped_experts": ("experts",),
    "kv_write": ("write",),
}
"""Keys of a kernel's figures, if they differ from its name."""


def main() -> None:
    if _RESULT.exists():
        report = json.loads(_RESULT.read_text())
        title = f"Measured on {report['machine']['gpu']}, in bfloat16"
        roofs, kernels = measured(report["figures"])
    else:
        title = "Not measured yet: upper bounds of bfloat16 launches from their bytes and operations"
        roofs, kernels = computed()
    _PICTURE.write_text(rooflines(title, roofs, kernels))
    print(f"written to {_PICTURE}")


def measured(figures: Mapping[str, Any]) -> tuple[Sequence[Roof], list[Launches]]:
    """Return the roofs and the launches of one run, some of which may have failed."""
    roof = Roof("copy and matmul of the same run", figures["bandwidth_gb_s"] * 1e9, figures["matmul_tflop_s"] * 1e12)
    kernels = []
    for kernel, name in NAMES.items():
        launches = [launch for key in FIGURES.get(kernel, (kernel,)) for launch in _launches(figures.get(key, []))]
        points = [
            (each["flops"] / each["moved_bytes"], each["flops"] / each["us"] * 1e6)
            for each in launches
            if each["flops"]
        ]
        kernels.append(Launches(name, points, measured=True))
    return [roof], kernels


def _launches(found: Any) -> Iterator[Mapping[str, Any]]:
    for each in found if isinstance(found, list) else [found]:
        if isinstance(each, list):
            yield from _launches(each)
        else:
            yield each


def computed() -> tuple[Sequence[Roof], list[Launches]]:
    """Return the vendor's roofs, and the launches compiled for bfloat16 under the highest of them."""
    kernels = []
    for module in KERNELS:
        if module.__name__.rpartition(".")[2] not in NAMES:
            continue
        intensities = sorted({v.flops / v.read_bytes for v in module.variants() if "bfloat16" in v.name} - {0})
        points = [(intensity, VENDOR_ROOFS[-1].at(intensity)) for intensity in intensities]
        kernels.append(Launches(NAMES[module.__name__.rpartition(".")[2]], points, measured=False))
    return VENDOR_ROOFS, kernels


if __name__ == "__main__":
    main()
