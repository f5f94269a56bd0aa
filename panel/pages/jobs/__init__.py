"""Pages of fine-tuning jobs."""
