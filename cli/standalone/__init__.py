"""Parts that run alone, one per container."""
