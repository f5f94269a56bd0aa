"""Request bodies of chat, completions, responses and embeddings."""
