"""The process of one system of `cpu.py`: it reads requests and writes results as lines of JSON.

It runs under the Python that has the system installed, so each system is imported where it is used.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Tokens = list[list[int]]


def main() -> None:
    system, arguments = sys.argv[1], json.loads(sys.argv[2])
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may write to standard output
    run = SYSTEMS[system](Path(arguments["base"]), [Path(path) for path in arguments["adapters"]], arguments["new"])
    for line in sys.stdin:
        turn = json.loads(line)
        began = time.perf_counter()
        tokens, figures = run(turn["adapters"], turn["prompts"])
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "tokens": tokens} | figures()), file=results, flush=True)


Run = Callable[[int, Tokens], tuple[Tokens, Callable[[], dict[str, float]]]]
"""Generates for all prompts with a number of distinct adapters; returns the new tokens, and a function that returns
further figures."""


def no_figures() -> dict[str, float]:
    return {}


def peft(base: Path, adapters: list[Path], new: int) -> Run:
    """Return transformers' `generate` without adapters, and PEFT's mixed batch (`adapter_names`) with them."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    mixed: Any = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapters[0], adapter_name="a0")
    for i, path in enumerate(adapters[1:], 1):
        mixed.load_adapter(path, adapter_name=f"a{i}")
    mixed.eval()

    @torch.inference_mode()
    def run(count: int, prompts: Tokens) -> tuple[Tokens, Callable[[], dict[str, float]]]:
        names = {"adapter_names": [f"a{i % count}" for i in range(len(prompts))]} if count else {}
        tokens = (mixed if count else plain).generate(
            input_ids=torch.tensor(prompts),
            attention_mask=torch.ones(len(prompts), len(prompts[0]), dtype=torch.long),
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
            **names,
        )
        return tokens[:, len(prompts[0]) :].tolist(), no_figures

    return run


def loragate(base: Path, adapters: list[Path], new: int, **config: Any) -> Run:
    """Return our engine; it also reports the time of its decode steps and of reading its adapters once."""
    import torch

    from loragate.engine.local import LocalEngine

    engine = LocalEngine(
        base,
        base.parent / "cache",
        {path.name: path for path in adapters},
        adapter_slots=len(adapters),
        max_batch_tokens=1024,
        max_step_ms=None,
        **config,
    )

    def run(count: int, prompts: Tokens) -> tuple[Tokens, Callable[[], dict[str, float]]]:
        requests = [
            engine.submit(prompt, adapters[i % count].name if count else None, max_tokens=new)
            for i, prompt in enumerate(prompts)
        ]
        for request in requests:
            engine.result(request)
        return [engine.tokens(request) for request in requests], lambda: figures(len(prompts))

    def figures(requests: int) -> dict[str, float]:
        records = engine.core.timeline.steps(new - 1)
        steps = [r.seconds for r in records if (r.batch.decode_rows, r.batch.prefill_tokens) == (requests, 0)]
        used, _ = engine.core.adapters.device_bytes
        return {
            "decode_ms": 1000 * statistics.median(steps),
            "adapter_bytes": used,
            "reading_them_ms": 1000 * used / read_bandwidth(),
        }

    def read_bandwidth() -> float:
        """Return the bytes per second of summing an array that is larger than any cache."""
        numbers = torch.ones(64 << 20)
        took = []
        for _ in range(5):
            began = time.perf_counter()
            numbers.sum()
            took.append(time.perf_counter() - began)
        end_team()  # this thread's OpenMP team would slow the step loop's down
        return numbers.nbytes / statistics.median(took)

    from loragate.kernels.cpu.openmp import end_team

    return run


def loragate_bfloat16(base: Path, adapters: list[Path], new: int) -> Run:
    """Return our engine in bfloat16."""
    return loragate(base, adapters, new, dtype="bfloat16")


def vllm(base: Path, adapters: list[Path], new: int) -> Run:
    """Return vLLM's CPU build, configured for the same number of concurrent requests and adapters."""
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest

    loras = [LoRARequest(path.name, i + 1, str(path)) for i, path in enumerate(adapters)]
    model = LLM(
        str(base),
        dtype="float32",
        skip_tokenizer_init=True,
        enable_lora=True,
        max_loras=len(adapters),
        max_lora_rank=16,
        max_model_len=512,
        max_num_seqs=len(adapters),
        enable_prefix_caching=False,
    )
    sampling = SamplingParams(temperature=0, max_tokens=new, ignore_eos=True, detokenize=False)

    def run(count: int, prompts: Tokens) -> tuple[Tokens, Callable[[], dict[str, float]]]:
        outputs = model.generate(
            [TokensPrompt(prompt_token_ids=ids) for ids in prompts],
            sampling,
            lora_request=[loras[i % count] for i in range(len(prompts))] if count else None,
            use_tqdm=False,
        )
        return [list(output.outputs[0].token_ids) for output in outputs], no_figures

    return run


SYSTEMS: dict[str, Callable[[Path, list[Path], int], Run]] = {
    "transformers / PEFT": peft,
    "loragate": loragate,
    "loragate bfloat16": loragate_bfloat16,
    "vLLM": vllm,
}


if __name__ == "__main__":
    main()
