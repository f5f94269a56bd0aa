"""The training API: what its routes do."""
