"""A `loragate serve --demo` for benchmarks of the whole server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

from benchmarks.lib.product import serving

DATA_DIR = Path("build/benchmark-demo")


@dataclass(frozen=True)
class DemoServer:
    """A running demo server with its fine-tune worker."""

    base_url: str
    demo: dict[str, Any]

    def client(self, tenant: int = 0) -> OpenAI:
        """Return a client of one of the demo's tenants."""
        key = self.demo["tenants"][tenant]["api_key"]
        return OpenAI(base_url=f"{self.base_url}/v1", api_key=key, max_retries=0, timeout=300)


@contextmanager
def demo_server(data_dir: Path) -> Iterator[DemoServer]:
    """Run a server within the block, from when it is ready."""
    with serving(data_dir, "--demo") as product:
        if product.runtime["pids"]["finetune"] is None:
            raise SystemExit("no fine-tune worker runs: pip install 'loragate[finetune]'")
        yield DemoServer(product.base_url, json.loads((data_dir / "demo.json").read_text()))
