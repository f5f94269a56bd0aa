"""The paged KV cache: blocks, the prefix cache, and its host tier."""
