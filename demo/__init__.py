"""The offline demo: a tiny base model, tenants and adapters, trained on the spot."""
