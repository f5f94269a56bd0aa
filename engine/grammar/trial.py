"""A script that compiles one grammar within limits of time and memory, to find out whether the engine may.

Some small schemas take minutes and gigabytes (intersections of patterns, `multipleOf` of a large number), and a thread
that compiles one cannot be stopped. The grammar is read from stdin, and the reason for a rejection is written to
stdout.
"""

import os
import resource
import sys

CPU_SECONDS = 3
MEMORY_BYTES = 1 << 30  # of address space
NICENESS = 5  # beside the engine's own threads


def main() -> None:
    """Compile the grammar; the process is killed by a signal if a limit is exceeded."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    limits = LLParserLimits(verbose_errors=False)
    matcher = LLMatcher(LLTokenizer("byte"), sys.stdin.read(), limits=limits, log_level=0)
    sys.stdout.write(matcher.get_error())


if __name__ == "__main__":
    main()
