"""QLoRA fine-tuning jobs."""
