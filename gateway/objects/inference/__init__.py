"""Objects of the inference routes: completions, messages, responses, embeddings and tokens."""
