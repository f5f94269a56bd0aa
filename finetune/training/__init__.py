"""The training process: one run of a base model, an adapter, a recipe and token files, on TRL, PEFT and
bitsandbytes."""
