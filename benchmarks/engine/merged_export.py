"""Time between tokens of interactive requests, with and without a merged export beside them.

`loragate serve` runs with its defaults on the machine that runs this program, too, with the model of
`benchmarks.gateway.neighbours` (88M parameters) and an adapter of rank 16 on all seven linears of each layer. Four
clients stream completions of the adapter, one after the other, with pauses between them. In each round they do so for a
while alone, and for as long while a tenant exports the merged model again and again, as fast as its client reads.
Percentiles are over all rounds.

    python -m benchmarks.engine.merged_export              # six rounds, six minutes
    python -m benchmarks.engine.merged_export --rounds 1   # a quick look
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console
from rich.table import Table
from transformers import LlamaForCausalLM

from benchmarks.engine.cpu import TARGETS
from benchmarks.gateway.batches import Latencies, client_of, interactive, summarize
from benchmarks.gateway.neighbours import build
from benchmarks.lib.product import ADMIN_KEY, Product, serving
from benchmarks.lib.report import write

SECONDS = 30.0
RANK = 16
ADAPTER = "poet"
PATH = f"/v1/adapters/{ADAPTER}/versions/1/merged"


@dataclass
class Exported:
    """What was exported beside the requests: whole archives, bytes, and the seconds that it took."""

    archives: int = 0
    bytes: int = 0
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="turns of each case")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = build(Path(folder))
        files = adapter_files(base, Path(folder) / ADAPTER)
        settings = {
            "LORAGATE_ADMIN_KEY": ADMIN_KEY,
            "LORAGATE_ENGINE__DEVICE": "cpu",
            "LORAGATE_MERGED_EXPORTS": "true",
        }
        with serving(Path(folder) / "data", "--model", str(base), settings=settings) as product:
            figures = asyncio.run(measure(product, files, arguments.rounds, arguments.seconds))
    show(figures)
    print(f"written to {write('merged_export', figures).relative_to(Path.cwd())}")


def adapter_files(base: Path, folder: Path) -> dict[str, bytes]:
    """Return the files of a random adapter."""
    config = LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS, init_lora_weights=False)
    torch.manual_seed(1)
    get_peft_model(LlamaForCausalLM.from_pretrained(base), config).save_pretrained(folder)
    return {name: (folder / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors")}


async def measure(product: Product, files: dict[str, bytes], rounds: int, seconds: float) -> dict[str, Any]:
    alone, beside, exported = Latencies(), Latencies(), Exported()
    key = product.add_tenant("bench")
    async with client_of(product, key) as guests, client_of(product, exporters_key(product)) as exporter:
        content = {name: (name, data) for name, data in files.items()}
        (await guests.post("/v1/adapters", data={"name": ADAPTER}, files=content)).raise_for_status()
        await interactive(guests, ADAPTER, Latencies(), 5.0)
        for _ in range(rounds):
            await interactive(guests, ADAPTER, alone, seconds)
            async with exporting(exporter, exported):
                await interactive(guests, ADAPTER, beside, seconds)
    return summarize(alone, beside) | {
        "archives": exported.archives,
        "exported_mb_per_second": round(exported.bytes / exported.seconds / 1e6, 1),
    }


def exporters_key(product: Product) -> str:
    """Create a key of the only tenant that may export."""
    with product.client(ADMIN_KEY) as admin:
        (tenant,) = admin.get("/admin/v1/tenants").raise_for_status().json()["data"]
        made = admin.post(f"/admin/v1/tenants/{tenant['id']}/keys", json={"scopes": ["export"]}).raise_for_status()
        return str(made.json()["secret"])


@asynccontextmanager
async def exporting(client: httpx.AsyncClient, exported: Exported) -> AsyncIterator[None]:
    """Export during the block, one archive after the other."""
    task = asyncio.create_task(export_all(client, exported))
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await until_free(client)


async def export_all(client: httpx.AsyncClient, exported: Exported) -> None:
    began = time.perf_counter()
    try:
        while True:
            async with client.stream("GET", PATH) as response:
                response.raise_for_status()
                async for part in response.aiter_bytes():
                    exported.bytes += len(part)
            exported.archives += 1
    finally:
        exported.seconds += time.perf_counter() - began


async def until_free(client: httpx.AsyncClient) -> None:
    """Wait until the engine has ended the export that was broken off."""
    while True:
        async with client.stream("GET", PATH) as response:
            if response.is_success:
                return
            assert response.status_code in (429, 503), response.status_code
        await asyncio.sleep(0.2)


def show(figures: dict[str, Any]) -> None:
    table = Table("", "alone, ms", "beside an export, ms", "ratio")
    for name in ("ttft_p50", "ttft_p99", "inter_token_p50", "inter_token_p99"):
        one, other = figures[f"{name}_ms"]
        table.add_row(name, str(one), str(other), str(figures[f"{name}_ratio"]))
    Console().print(table)
    print(f"{figures['archives']} archives, {figures['exported_mb_per_second']} MB per second")


if __name__ == "__main__":
    main()
