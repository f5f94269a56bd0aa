"""adapter_config.json: strict JSON, its fields, and the values that are accepted."""
