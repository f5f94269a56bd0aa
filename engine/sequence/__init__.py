"""The nouns of generation: requests, sequences and their outputs."""
