"""One training run: a base model, an adapter, a recipe, token files; on TRL, PEFT and bitsandbytes."""
