"""Counts the project's files that a warm streamed chat completion with an adapter executes, in gateway and engine.

A reader who follows a request opens about as many files. A real server serves requests with a tiny model of random
weights; `sys.setprofile` records each file that executes between a request and half a second after its end. A file
counts if it executes in every one of several requests, which excludes the work of timers.

    python -m benchmarks.gateway.request_files --keep
    python -m benchmarks.gateway.request_files --python ../other-checkout/.venv/bin/python
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.lib.product import ADMIN_KEY, serving
from benchmarks.lib.report import write

HOOK = Path(__file__).parent / "profile_hook"
PARTS = ("gateway", "engine", "kernels", "adapter_store", "peft_format", "prompts", "proto")
WARM_UP, REQUESTS, AFTER_SECONDS = 5, 8, 0.5
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "


def make_model(folder: Path) -> None:
    """Save a Llama of random weights, its tokenizer, and one adapter under `folder`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(["user: assistant: what is the capital of France?"], trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    wrapped.chat_template = TEMPLATE
    wrapped.save_pretrained(folder / "base")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=320, num_key_value_heads=2, max_position_embeddings=512, **sizes))
    model.save_pretrained(folder / "base")
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(folder / "adapter")


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of a server with the profile hook in its processes."""
    return {
        "PYTHONPATH": str(HOOK),
        "REQUEST_FILES_OUT": str(folder),
        "OMP_NUM_THREADS": "1",
        "LORAGATE_ADMIN_KEY": ADMIN_KEY,
        "LORAGATE_FINETUNE__ENABLED": "false",
        "LORAGATE_PANEL__ENABLED": "false",
    }


def upload(client: httpx.Client, adapter: Path) -> None:
    """Upload the adapter as `style`."""
    names = ("adapter_config.json", "adapter_model.safetensors")
    files = {name: (adapter / name).read_bytes() for name in names}
    client.post("/v1/adapters", data={"name": "style"}, files=files).raise_for_status()


def ask(client: httpx.Client) -> None:
    """Stream one chat completion to its end."""
    body = {"model": "style", "messages": [{"role": "user", "content": "what is it?"}], "max_tokens": 8, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]", lines


def record(client: httpx.Client, pids: dict[str, int], folder: Path) -> dict[str, set[str]]:
    """Return the files that each process executed for one request, relative to the checkout."""
    for pid in pids.values():
        (folder / f"{pid}.json").unlink(missing_ok=True)
        os.kill(pid, signal.SIGUSR1)
    time.sleep(0.05)
    ask(client)
    time.sleep(AFTER_SECONDS)
    found = {}
    for name, pid in pids.items():
        os.kill(pid, signal.SIGUSR2)
        written = folder / f"{pid}.json"
        while not written.exists():
            time.sleep(0.01)
        found[name] = {file for path in json.loads(written.read_text()) if (file := in_project(path))}
    return found


def in_project(path: str) -> str | None:
    """Return a file's path within the checkout; None for libraries."""
    parts = Path(path).parts
    if "site-packages" in parts or "profile_hook" in parts:
        return None
    at = next((i for i, part in enumerate(parts) if part in PARTS), None)
    return None if at is None else "/".join(parts[at:])


def measure(python: str) -> dict[str, Any]:
    """Return the files that execute in every request, and their number by process."""
    with tempfile.TemporaryDirectory(prefix="request-files-") as name:
        folder = Path(name)
        make_model(folder)
        options = ("--model", str(folder / "base"))
        with serving(folder / "data", *options, settings=settings(folder), python=python, folder=folder) as product:
            processes = product.runtime["pids"]
            pids = {"gateway": processes["gateway"][0], "engine": processes["engine"]}
            with product.client(product.add_tenant("acme")) as client:
                upload(client, folder / "adapter")
                for _ in range(WARM_UP):
                    ask(client)
                    time.sleep(0.2)
                seen = [record(client, pids, folder) for _ in range(REQUESTS)]
    counts = Counter(file for each in seen for file in each["gateway"] | each["engine"])
    always = sorted(file for file, times in counts.items() if times == REQUESTS)
    by_process = {
        name: sum(all(file in each[name] for each in seen) for file in {file for each in seen for file in each[name]})
        for name in pids
    }
    return {"files": len(always), "by_process": by_process, "sometimes": len(counts) - len(always), "names": always}


def main() -> None:
    """Measure, print, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter of the loragate to measure")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/request_files.json")
    options = parser.parse_args()
    found = measure(options.python)
    print(f"{found['files']} files execute in every request: {found['by_process']}; {found['sometimes']} in some")
    for name in found["names"]:
        print("   ", name)
    if options.keep:
        write("request_files", found)


if __name__ == "__main__":
    main()
