"""adapter_config.json: strict JSON, its fields, and what is accepted."""
