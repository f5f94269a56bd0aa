"""The training of many tenants' LoRA adapters on one base model: the computation, without storage or network."""
