"""vLLM as a backend: our service over its AsyncLLM, for models and parallelism that our engine does not have."""
