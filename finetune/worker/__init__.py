"""The fine-tune worker process."""
