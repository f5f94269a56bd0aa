"""A process that compiles one grammar within bounds of time and memory, to see whether ours may.

Some small schemas take minutes and gigabytes (intersections of patterns, `multipleOf` of a large number), and a thread
that compiles one cannot be stopped. Run as a script: the grammar on stdin, the reason of a refusal on stdout.
"""

import resource
import sys

CPU_SECONDS = 3
MEMORY_BYTES = 1 << 30  # of address space


def main() -> None:
    """Exits by signal when a bound is passed."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer

    limits = LLParserLimits(verbose_errors=False)
    matcher = LLMatcher(LLTokenizer("byte"), sys.stdin.read(), limits=limits, log_level=0)
    sys.stdout.write(matcher.get_error())


if __name__ == "__main__":
    main()
