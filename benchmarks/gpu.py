"""All that wants a GPU, in one command: check every kernel against its reference, time them, serve an 8B model.

    python benchmarks/gpu.py --out benchmarks/results/                 # all stages
    python benchmarks/gpu.py --out benchmarks/results/ --stage time    # one of them; each fits ten minutes
    python benchmarks/gpu.py --out /tmp/out --interpret --tiny         # without a GPU: that the script itself runs

`check` fails if a kernel is wrong. `time` compares LoRA with a product for each adapter (torch) and with a batched one
over gathered weights (bmm), and gives the share of the memory's speed, measured in the same run, that was reached.
`serve` measures our engine over random weights with 5 adapters and with many, drawn by Zipf's law.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if "--interpret" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported

import torch
from report import machine
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from loragate.engine.local import LocalEngine
from loragate.kernels import gpu
from loragate.kernels.gpu import decode_attention
from loragate.kernels.gpu.segmented_lora import DECODE_TILINGS, PREFILL_TILINGS, SlotTable, Tiling, Work, WorkList
from loragate.kernels.paged_attention import AttentionOptions, DecodeRows, LayerCache, gathered_decode_attention
from loragate.kernels.segmented_lora import Expand, LoraWeights, add_segment_by_segment, lora_reference, segments_of

PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--out", type=Path, required=True, help="folder for gpu_<stage>.json")
PARSER.add_argument("--stage", choices=["check", "time", "serve"], action="append", help="default: all")
PARSER.add_argument("--interpret", action="store_true", help="run the kernels in Triton's interpreter, on the CPU")
PARSER.add_argument("--tiny", action="store_true", help="sizes that the interpreter gets through")
OPTIONS = PARSER.parse_args()
DEVICE = torch.device("cpu" if OPTIONS.interpret else "cuda")
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.02, torch.bfloat16: 0.15}
IN, WIDTHS = (64, (64, 32, 32)) if OPTIONS.tiny else (4096, (4096, 1024, 1024))
OUT = sum(WIDTHS)
RANKS = (8, 16) if OPTIONS.tiny else (8, 16, 64, 256)


def main() -> None:
    if OPTIONS.interpret:
        gpu.serves = lambda device: True
    OPTIONS.out.mkdir(parents=True, exist_ok=True)
    for stage in OPTIONS.stage or ["check", "time", "serve"]:
        began = time.perf_counter()
        figures = STAGES[stage]()
        seconds = round(time.perf_counter() - began, 1)
        report = {"benchmark": f"gpu_{stage}", "command": _command(), "machine": machine(), "seconds": seconds}
        path = OPTIONS.out / f"gpu_{stage}.json"
        path.write_text(json.dumps(report | {"figures": figures}, indent=2) + "\n")
        print(f"{stage}: {seconds} s, written to {path}", flush=True)


def check() -> dict[str, Any]:
    """Largest difference to the references in float64, for every type. Raises AssertionError beyond the tolerance."""
    worst: dict[str, float] = {}
    for dtype, tolerance in TOLERANCE.items():
        for tiling in DECODE_TILINGS + (PREFILL_TILINGS if dtype != torch.float32 else ()):
            for slots in ([0, 0, 1, 2, 2, 2], [3] * 20, [0]):
                x, out = _numbers(len(slots), IN, dtype=dtype), _numbers(len(slots), OUT, dtype=dtype)
                weights = {slot: _weights(RANKS[slot % len(RANKS)], dtype) for slot in set(slots)}
                expected = lora_reference(out, x, slots, weights)
                _table(weights).add(out, x, _work(slots, tiling))
                _judge(worst, f"lora {dtype}", out.double() - expected, tolerance * expected.abs().max().item())
        for name, options in _attention_options().items():
            query, cache, rows = _attention(dtype, sequences=3, longest=100, head_dim=32 if OPTIONS.tiny else 128)
            out = decode_attention.decode_attention(query, cache, rows, options)
            doubles = LayerCache(1, 1, 1, 1, torch.float64, DEVICE)
            doubles.keys, doubles.values = cache.keys.double(), cache.values.double()
            expected = gathered_decode_attention(query.double(), doubles, rows, options)
            _judge(worst, f"attention {name} {dtype}", out.double() - expected, tolerance)
    return {"largest_difference": worst}


def measure() -> dict[str, Any]:
    """Microseconds of LoRA on a fused q, k and v, and of decode attention, beside what torch takes."""
    dtype = torch.float32 if OPTIONS.interpret else torch.bfloat16
    bandwidth = _bandwidth()
    lora = []
    for rank in RANKS:
        for rows in (2,) if OPTIONS.tiny else (1, 4, 16, 64):
            for popularity, slots in (("distinct", list(range(rows))), ("identical", [0] * rows)):
                lora.append(_time_lora(dtype, rank, popularity, slots, bandwidth))
                print(lora[-1], flush=True)
    lengths = ((2, 64),) if OPTIONS.tiny else ((1, 1024), (16, 1024), (64, 1024), (16, 8192))
    attention = [_time_attention(dtype, sequences, longest, bandwidth) for sequences, longest in lengths]
    return {"bandwidth_gb_s": round(bandwidth / 1e9, 1), "lora": lora, "attention": attention}


def serve() -> dict[str, Any]:
    """Tokens per second of the engine over random weights, 16 requests at a time."""
    many, prompt, new, requests = (6, 4, 3, 6) if OPTIONS.tiny else (2000, 64, 128, 256)
    config = LlamaConfig(
        **(
            {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"num_key_value_heads": 2, "vocab_size": 128}
            if OPTIONS.tiny
            else {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32}
            | {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192}
        )
    )
    with tempfile.TemporaryDirectory() as directory:
        folders = _build(Path(directory), config, kinds=3 if OPTIONS.tiny else 16)
        names = {f"a{i}": folders[i % len(folders)] for i in range(many)}
        engine = LocalEngine(Path(directory) / "base", Path(directory) / "cache", names, adapter_slots=64)
        rng = random.Random(0)
        results = {}
        for case, draw in {
            "base": lambda: None,
            "5 adapters": lambda: f"a{rng.randrange(5)}",
            f"{many} adapters": lambda: f"a{min(int(rng.paretovariate(1.0)), many) - 1}",
        }.items():
            speeds = []
            for _ in range(3):
                began = time.perf_counter()
                ids = [
                    engine.submit([rng.randrange(3, config.vocab_size) for _ in range(prompt)], draw(), max_tokens=new)
                    for _ in range(requests)
                ]
                for request in ids:
                    engine.result(request)
                speeds.append(requests * new / (time.perf_counter() - began))
            results[case] = round(statistics.median(speeds[1:]), 1)
            print(case, results[case], "tokens/s", flush=True)
        engine.close()
    return {"requests": requests, "prompt_tokens": prompt, "new_tokens": new, "tokens_per_second": results}


STAGES: dict[str, Callable[[], dict[str, Any]]] = {"check": check, "time": measure, "serve": serve}


def _build(directory: Path, config: LlamaConfig, kinds: int) -> list[Path]:
    """A model and some adapters of rank 8 on q, k, v and o, as transformers and PEFT save them."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    with torch.device(DEVICE):
        torch.set_default_dtype(torch.float32 if OPTIONS.interpret else torch.bfloat16)
        model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    model.save_pretrained(directory / "base")
    folders = []
    for kind in range(kinds):
        targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
        wrapped = get_peft_model(model, LoraConfig(r=8, target_modules=targets, init_lora_weights=False))
        folders.append(directory / f"adapter-{kind}")
        wrapped.save_pretrained(folders[-1])
        model = wrapped.unload()
    return folders


def _time_lora(dtype: torch.dtype, rank: int, popularity: str, slots: list[int], bandwidth: float) -> dict[str, Any]:
    x, out = _numbers(len(slots), IN, dtype=dtype), _numbers(len(slots), OUT, dtype=dtype)
    weights = {slot: _weights(rank, dtype) for slot in set(slots)}
    table, works = _table(weights), [_work(slots, tiling) for tiling in DECODE_TILINGS]
    best: tuple[float, Tiling] = min((_microseconds(lambda w=w: table.add(out, x, w)), w[0].tiling) for w in works)
    segments = segments_of(slots)
    loop = _microseconds(lambda: add_segment_by_segment(out, x, segments, weights))
    a = torch.stack([weights[slot].a for slot in slots]).transpose(1, 2)
    b = [torch.stack([weights[slot].expands[i].b for slot in slots]) for i in range(len(WIDTHS))]

    def bmm() -> Tensor:
        shrunk = torch.bmm(x[:, None], a).split(rank, dim=2)
        return torch.cat([torch.bmm(h, each) for h, each in zip(shrunk, b, strict=True)], dim=2)

    read = sum(sum(t.nbytes for t in w.tensors) for w in weights.values())
    return {
        "rank": rank,
        "rows": len(slots),
        "popularity": popularity,
        "us": best[0],
        "tiling": best[1]._asdict(),
        "torch_us": loop,
        "bmm_us": _microseconds(bmm),
        "of_bandwidth": round(read / (best[0] * 1e-6) / bandwidth, 3),
    }


def _time_attention(dtype: torch.dtype, sequences: int, longest: int, bandwidth: float) -> dict[str, Any]:
    query, cache, rows = _attention(dtype, sequences, longest, head_dim=128)
    ours = _microseconds(lambda: decode_attention.decode_attention(query, cache, rows, AttentionOptions(0.1)))
    read = 2 * sequences * longest * cache.keys.shape[0] * cache.keys.shape[2] * dtype.itemsize
    figures = {
        "sequences": sequences,
        "length": longest,
        "us": ours,
        "torch_us": _microseconds(lambda: gathered_decode_attention(query, cache, rows, AttentionOptions(0.1))),
        "of_bandwidth": round(read / (ours * 1e-6) / bandwidth, 3),
    }
    print(figures, flush=True)
    return figures


def _microseconds(function: Callable[[], object]) -> float:
    """Median over runs, after a few to warm up."""
    took = []
    for turn in range(3 if OPTIONS.tiny else 60):
        _wait()
        began = time.perf_counter()
        function()
        _wait()
        if turn >= (1 if OPTIONS.tiny else 10):
            took.append(time.perf_counter() - began)
    return round(1e6 * statistics.median(took), 1)


def _wait() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


def _bandwidth() -> float:
    """Bytes a second that are read and written by a large copy."""
    source = torch.ones(1 << (22 if OPTIONS.tiny else 30), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (_microseconds(lambda: target.copy_(source)) * 1e-6)


def _numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    return (torch.randn(*shape, device=DEVICE) / 4).to(dtype)


def _weights(rank: int, dtype: torch.dtype) -> LoraWeights:
    starts = [sum(WIDTHS[:i]) for i in range(len(WIDTHS))]
    expands = [
        Expand(i * rank, (i + 1) * rank, start, _numbers(rank, width, dtype=dtype) / 8)
        for i, (start, width) in enumerate(zip(starts, WIDTHS, strict=True))
    ]
    return LoraWeights(_numbers(rank * len(WIDTHS), IN, dtype=dtype) / 8, tuple(expands))


def _table(weights: dict[int, LoraWeights]) -> SlotTable:
    table = SlotTable(WIDTHS, IN, next(iter(weights.values())).a.dtype, DEVICE)
    for slot, each in weights.items():
        table.put(slot, each)
    return table


def _work(slots: list[int], tiling: Tiling) -> WorkList:
    return (Work.of(segments_of(slots), DEVICE, tiling),)


def _attention_options() -> dict[str, AttentionOptions]:
    heads = 8
    return {
        "plain": AttentionOptions(0.1),
        "window": AttentionOptions(0.1, window=40),
        "softcap and sinks": AttentionOptions(0.1, softcap=3.0, sinks=torch.linspace(-1, 2, heads, device=DEVICE)),
    }


def _attention(
    dtype: torch.dtype, sequences: int, longest: int, head_dim: int
) -> tuple[Tensor, LayerCache, DecodeRows]:
    """Queries of 8 heads over 2 heads of keys, in blocks of 16 places that lie scattered."""
    heads, kv_heads, blocks = 8, 2, -(-longest // 16)
    cache = LayerCache((sequences * blocks + 1) * 16, kv_heads, head_dim, head_dim, dtype, DEVICE)
    cache.keys.normal_()
    cache.values.normal_()
    order = (torch.randperm(sequences * blocks) + 1).view(sequences, blocks, 1) * 16
    places = (order + torch.arange(16)).view(sequences, -1).to(DEVICE)
    lengths = torch.tensor([longest - i % 3 for i in range(sequences)], device=DEVICE)
    return _numbers(heads, sequences, head_dim, dtype=dtype), cache, DecodeRows(places, lengths)


def _judge(worst: dict[str, float], name: str, difference: Tensor, tolerance: float) -> None:
    found = difference.abs().max().item()
    assert found <= tolerance, f"{name}: off by {found}, more than {tolerance}"
    worst[name] = max(worst.get(name, 0.0), found)


def _command() -> str:
    return " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


if __name__ == "__main__":
    main()
