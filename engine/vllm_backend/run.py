"""The engine process with vLLM as its backend. It runs in vLLM's environment."""

import asyncio
import os
from functools import partial
from itertools import count

from loragate.engine.config import EngineConfig
from loragate.engine.model.errors import exit_if_rejected
from loragate.engine.server.access import check_access
from loragate.engine.server.server import serve
from loragate.engine.vllm_backend.attach import attach, check_options
from loragate.engine.vllm_backend.backend import VllmBackend


def run(config: EngineConfig) -> None:
    """Serve until SIGTERM or SIGINT. Exits with status 2 if vLLM may not serve the model, with the reason on stderr.

    Raise ValueError for a configuration that leaves the engine open to others, or that vLLM has no counterpart for.
    """
    check_access(config)
    check_options(config)
    if config.threads is not None:
        os.environ |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(config.threads)}
    with exit_if_rejected():
        asyncio.run(_serve(config))


async def _serve(config: EngineConfig) -> None:
    """Listen only once vLLM has passed the test: until then no gateway finds an engine here."""
    numbers = count(1)  # of adapters, each used once in the life of the process
    llm, model = await attach(config, numbers)
    await serve(partial(VllmBackend, llm, model, numbers, config), config)
