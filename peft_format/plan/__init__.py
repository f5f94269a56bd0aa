"""Plans for each module, from a config and the base model's layout."""
