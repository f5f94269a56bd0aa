"""A script that compiles one grammar within limits of time and memory, to find out whether the engine may.

Some small schemas take minutes and gigabytes (intersections of patterns, `multipleOf` of a large number), and a thread
that compiles one cannot be stopped. The grammar is read from stdin, and the reason for a rejection is written to
stdout. The library is the extension module at the path in the first argument: it is loaded without its package, whose
imports take six times as long.
"""

import os
import resource
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

CPU_SECONDS = 3
MEMORY_BYTES = 1 << 30  # of address space
NICENESS = 5  # beside the engine's own threads


def main() -> None:
    """Compile the grammar; the process is killed by a signal if a limit is exceeded."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    library = _load("llguidance._lib", sys.argv[1])
    limits = library.LLParserLimits(verbose_errors=False)
    matcher = library.LLMatcher(library.LLTokenizer("byte"), sys.stdin.read(), limits=limits, log_level=0)
    sys.stdout.write(matcher.get_error())


def _load(name: str, path: str) -> Any:
    loader = ExtensionFileLoader(name, path)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
