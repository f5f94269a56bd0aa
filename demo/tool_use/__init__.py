"""The demo model's use of tools, as data: the tools, questions that need them, their results, and the answers."""
