"""Replacements for transformers' layers: attention, LoRA linears, experts, norms, rotary embeddings."""
