"""Routes that generate: chat, completions, responses, embeddings, models."""
