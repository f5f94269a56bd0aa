"""What replaces transformers' layers: attention, LoRA linears, experts, norms, rotary embeddings."""
